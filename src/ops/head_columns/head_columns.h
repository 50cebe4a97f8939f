// Keeps consecutive columns of each head.
#pragma once

#include <cstdint>

#include "program/program.h"

namespace hone {

struct HeadColumnsAttributes {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t columns = 0;  // kept in each head
  std::int64_t first = 0;    // the first of them; first + columns is at most head_dim

  template <class Visitor>
  void fields(Visitor& v) {
    v("heads", heads);
    v("head_dim", head_dim);
    v("columns", columns);
    v("first", first);
  }
};

// Returns [rows, heads x columns] for x [rows, heads x head_dim] of any floating type. Rows past the count are zero.
// The gradient of a dropped column is zero. Throws Error if the sizes do not fit.
[[nodiscard]] Tensor head_columns(Tensor x, const HeadColumnsAttributes& attributes);

}  // namespace hone
