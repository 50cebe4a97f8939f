// The number of the next token, within each document.
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace hone {

// Indices of the inputs.
struct NextInDocumentIn {
  enum : std::size_t { x, cu_seqlens };
};

struct NextInDocumentAttributes {
  std::int64_t last = 0;  // value of the last token of a document

  template <class Visitor>
  void fields(Visitor& v) {
    v("last", last);
  }
};

// Returns y[t] = x[t + 1] for x i32 [tokens], or `last` if t is the last token of its document or in none. cu_seqlens:
// i32 [documents + 1]. There is no gradient.
[[nodiscard]] Tensor next_in_document(Tensor x, Tensor cu_seqlens, const NextInDocumentAttributes& attributes);

}  // namespace hone
