// Picks rows, such as those whose logits are wanted.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// The operands, in order.
struct GatherRowsIn {
  enum : std::size_t { x, index };
};

// x [rows, n] of any type, index i32[samples] with the numbers of rows in use of x -> [samples, n]. No gradient.
[[nodiscard]] Tensor gather_rows(Tensor x, Tensor index);

}  // namespace hone
