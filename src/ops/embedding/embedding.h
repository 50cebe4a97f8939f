// Token embedding: rows of a table by index.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct EmbeddingIn {
  enum : std::size_t { tokens, weight };
};
struct EmbeddingGradientIn {
  enum : std::size_t { dy, tokens, dweight };
};

// Returns [rows, hidden] for tokens i32 [rows], each in [0, vocab), and weight [vocab, hidden]. Rows past the count are
// zero. The weight's gradient is summed in the order of rows. A CPU asserts that tokens are in range; on a GPU the row
// of another number is NaN, and gives no gradient.
[[nodiscard]] Tensor embedding(Tensor tokens, Tensor weight);

}  // namespace hone
