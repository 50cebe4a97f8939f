// Picks rows, such as those whose logits are wanted.
#pragma once

#include "program/program.h"

namespace hone {

// x [rows, n] of any type, index i32[samples] with the numbers of rows in use of x -> [samples, n]. No gradient.
[[nodiscard]] Tensor gather_rows(Tensor x, Tensor index);

}  // namespace hone
