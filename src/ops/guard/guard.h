// Sticky flag of a training run that has produced a number that is not finite.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct GuardIn {
  enum : std::size_t { values, bad };
};

// Sets bad (i32[1], a state, in place) to 1 if a number in `values` (floating) is not finite, and never clears it.
// Returns the updated bad, for the optimizer.
[[nodiscard]] Tensor guard(Tensor values, Tensor bad);

}  // namespace hone
