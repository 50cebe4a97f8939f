// The order of the rows that experts compute: by expert, then by token. No token is dropped.
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace hone {

// Indices of the outputs.
struct ExpertOrderOut {
  enum : std::size_t { position, start };
};

struct ExpertOrderAttributes {
  std::int64_t experts = 1;

  template <class Visitor>
  void fields(Visitor& v) {
    v("experts", experts);
  }
};

struct ExpertOrder {
  Tensor position;  // i32 [tokens, top_k]: the row of each choice; rows are ordered by expert, token, place in the row
  Tensor start;     // i32 [experts + 1]: the first row of each expert; the last is the number of rows
};

// Orders the choices expert i32 [tokens, top_k], each from 0 to experts - 1. There is no gradient.
[[nodiscard]] ExpertOrder expert_order(Tensor expert, const ExpertOrderAttributes& attributes);

}  // namespace hone
