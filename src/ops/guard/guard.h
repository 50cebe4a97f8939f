// The sticky mark of a training run that has met a number that is not finite.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// The operands, in order.
struct GuardIn {
  enum : std::size_t { values, bad };
};

// Sets bad [1] (i32 state, in place) to 1 where a number in `values` (floating) is not finite; never clears it. Returns
// bad as it then stands, for adamw.
[[nodiscard]] Tensor guard(Tensor values, Tensor bad);

}  // namespace hone
