// Token embedding: rows of a table by index.
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct EmbeddingIn {
  enum : std::size_t { tokens, weight };
};
struct EmbeddingGradientIn {
  enum : std::size_t { dy, tokens, dweight };
};

// Attributes of the lookup in a part of the vocabulary.
struct EmbeddingPartAttributes {
  std::int64_t first = 0;  // token of the first row of the table
  std::int64_t vocab = 0;  // rows of all parts together

  template <class Visitor>
  void fields(Visitor& v) {
    v("first", first);
    v("vocab", vocab);
  }
};

// Returns [rows, hidden] for tokens i32 [rows], each in [0, vocab), and weight [vocab, hidden]. Rows past the count are
// zero. The weight's gradient is summed in the order of rows. A CPU asserts that tokens are in range; on a GPU the row
// of another number is NaN, and gives no gradient.
[[nodiscard]] Tensor embedding(Tensor tokens, Tensor weight);

// Returns the same for a table that has some rows of the vocabulary, as one rank of a tensor group has them: the row of
// a token that is in none of them is zero, and gives no gradient. A CPU asserts that tokens are in [0, vocab).
[[nodiscard]] Tensor embedding_part(Tensor tokens, Tensor weight, const EmbeddingPartAttributes& attributes);

}  // namespace hone
