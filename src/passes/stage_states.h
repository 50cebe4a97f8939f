// The passes that put what a stage of a pipeline exchanges and keeps into states: memory that its programs and the
// transfers between stages share, one set for each micro-batch under way. They run on the compiled program of a stage
// (passes/pipeline.h) and add copies only.
#pragma once

#include <cstdint>

#include "program/program.h"

namespace hone {

// The values that a program of a stage sends. What it receives are inputs of the names of cut_stage(), and gradients.
enum class StageSends : std::uint8_t {
  kValues,     // a forward pass: sent values
  kGradients,  // a forward and backward pass: gradients of received values; sent values are not computed
};
// Returns the program with the values that it receives and sends as states of their names. Nodes that nothing needs are
// left out.
[[nodiscard]] Program exchange_by_states(const Program& program, StageSends sends);

// A stage's forward and backward pass as two programs. The states "kept.N" are the activations that the backward pass
// reads, which the forward pass copies there as soon as it has computed them; the others are those of
// exchange_by_states().
struct SplitStage {
  Program forward;
  Program backward;
};
[[nodiscard]] SplitStage split_passes(const Program& program);

}  // namespace hone
