// Picks rows by index, such as those whose logits are sampled.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct GatherRowsIn {
  enum : std::size_t { x, index };
};

// Returns [samples, n] for x [rows, n] of any dtype and index i32[samples] of rows in use of x. There is no gradient. A
// CPU asserts that the indices are in range; on a GPU another index gives a row of set bits (NaN for floating types).
[[nodiscard]] Tensor gather_rows(Tensor x, Tensor index);

}  // namespace hone
