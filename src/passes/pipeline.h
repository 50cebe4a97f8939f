// The pass that cuts a traced program into the stages of a pipeline (Huang et al., "GPipe: Efficient training of giant
// neural networks using pipeline parallelism", 2019). A stage has consecutive layers; the first one also has what comes
// before the layers, the last one what comes after them. Values that cross a cut become outputs of one stage and inputs
// of the next, and their gradients the reverse. Model code knows nothing of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace hone {

// A stage, and the first layer of each stage, ascending from 0. A process may have several of these stages, its chunks
// (model/stage_model.h).
struct StageCut {
  int stage = 0;
  std::vector<std::int64_t> first_layers;  // [stages]
  std::string loss = "loss";               // output from which the backward pass starts

  [[nodiscard]] int stages() const { return static_cast<int>(first_layers.size()); }
  [[nodiscard]] bool is_last() const { return stage + 1 == stages(); }
  [[nodiscard]] int stage_of(std::int64_t layer) const;
};

// Returns the number of layers of a traced program.
[[nodiscard]] std::int64_t count_layers(const Program& program);
// Returns the first layer of each stage such that the slowest stage is as fast as possible, by the cost of each layer
// and of what comes before and after the layers on a GPU; built-in rates, so that it does not depend on the machine.
// The program must have at least as many layers as there are stages.
[[nodiscard]] std::vector<std::int64_t> balanced_layers(const Program& program, int stages);
// Returns the stages whose nodes read each weight, by name, ascending.
[[nodiscard]] std::map<std::string, std::vector<int>> stages_of_weights(const Program& program, const StageCut& cut);

// Returns the nodes of a stage as a program. Inputs "received.N" are the values that come from the stage before,
// outputs "sent.N" those that the next one gets, in the same order; those that the loss does not depend on in a
// differentiable way are called "received.constant.N" and "sent.constant.N". The outputs of the program are those of
// the last stage. Nodes that depend on inputs alone are in each stage that reads them.
[[nodiscard]] Program cut_stage(const Program& program, const StageCut& cut);

// Return true for names of cut_stage().
[[nodiscard]] bool is_received(std::string_view name);
[[nodiscard]] bool is_sent(std::string_view name);
// Returns true if the gradient of this input or output crosses the cut as well. The backward pass of a stage has the
// gradients of outputs as inputs, and those of inputs as outputs, under gradient_name().
[[nodiscard]] bool has_gradient(std::string_view name);
[[nodiscard]] std::string gradient_name(std::string_view name);
// Returns N of any of these names.
[[nodiscard]] std::int64_t crossing_number(std::string_view name);
// Returns true for gradient_name() of a received or of a sent value.
[[nodiscard]] bool is_received_gradient(std::string_view name);
[[nodiscard]] bool is_sent_gradient(std::string_view name);

}  // namespace hone
