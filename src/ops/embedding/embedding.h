// Rows of a table by index.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// The operands, in order.
struct EmbeddingIn {
  enum : std::size_t { tokens, weight };
};
struct EmbeddingGradientIn {
  enum : std::size_t { dy, tokens, dweight };
};

// tokens i32 [rows], each in [0, vocab), weight [vocab, hidden] -> [rows, hidden]. Rows past the count are zero. The
// weight's gradient is summed in the order of rows.
[[nodiscard]] Tensor embedding(Tensor tokens, Tensor weight);

}  // namespace hone
