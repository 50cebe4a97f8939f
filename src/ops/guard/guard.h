// The sticky mark of a training run that has met a number that is not finite.
#pragma once

#include "program/program.h"

namespace hone {

// Sets bad [1] (i32 state, in place) to 1 where a number in `values` (floating) is not finite; never clears it. Returns
// bad as it then stands, for adamw.
[[nodiscard]] Tensor guard(Tensor values, Tensor bad);

}  // namespace hone
