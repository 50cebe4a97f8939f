// The pass that sums gradients over the ranks of a job while the backward pass still runs. It adds communication only.
#pragma once

#include <set>
#include <string>

#include "program/program.h"

namespace hone {

// The gradients of divided experts, by name of the weight. A rank has those of its experts, over the rows of its whole
// expert group.
struct ExpertGradients {
  std::set<std::string, std::less<>> names;
  bool are_summed = false;  // over the ranks that have the same experts; false: no other rank has them
};

// Returns the program with operations that replace each gradient by its sum over the ranks. They start after the layer
// that completes the gradient, in the order of the layers, run next to the layers before it and are waited for at the
// end. For the last micro-batch of a step; programs of all ranks must be the same.
[[nodiscard]] Program sum_gradients(const Program& program, const ExpertGradients& experts = {});

}  // namespace hone
