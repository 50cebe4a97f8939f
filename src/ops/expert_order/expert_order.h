// The order of the rows that experts compute: by expert, then by token. No token is dropped. A rank that has some of
// the experts, such as a rank of a tensor group, orders the rows of these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "program/program.h"

namespace hone {

// Indices of the outputs.
struct ExpertOrderOut {
  enum : std::size_t { position, start };
};

struct ExpertOrderPartOut {
  enum : std::size_t { position, start, rows };
};

struct ExpertOrderAttributes {
  std::int64_t experts = 1;

  template <class Visitor>
  void fields(Visitor& v) {
    v("experts", experts);
  }
};

// Successive experts of all.
struct ExpertPartAttributes {
  std::int64_t experts = 1;  // all of them
  std::int64_t first = 0;
  std::int64_t own = 1;  // experts of the part
  std::string count;     // name of the count of its rows

  template <class Visitor>
  void fields(Visitor& v) {
    v("experts", experts);
    v("first", first);
    v("own", own);
    v("count", count);
  }
};

struct ExpertOrder {
  Tensor position;  // i32 [tokens, top_k]: the row of each choice; rows are ordered by expert, token, place in the row
  Tensor start;     // i32 [experts + 1]: the first row of each expert; the last is the number of rows
};

struct ExpertOrderPart {
  Tensor position;  // i32 [tokens, top_k]: the row of each choice of an expert of the part, otherwise -1
  Tensor start;     // i32 [own + 1]
  Tensor rows;      // i64 [1]: the number of rows
};

// Orders the choices expert i32 [tokens, top_k], each from 0 to experts - 1. There is no gradient.
[[nodiscard]] ExpertOrder expert_order(Tensor expert, const ExpertOrderAttributes& attributes);
// The same of the choices that are experts of the part. Declares part.count, which counts up to rows_of_part() rows.
[[nodiscard]] ExpertOrderPart expert_order_part(Tensor expert, const ExpertPartAttributes& part);

// Returns the part whose order computes a position or a start; null if they are those of all experts.
[[nodiscard]] const ExpertPartAttributes* part_of_order(Tensor order);
// The rows of a part for position i32 [tokens, top_k]: a token chooses different experts, so that at most min(top_k,
// own) are those of the part.
[[nodiscard]] Dim rows_of_part(const Type& position, const ExpertPartAttributes& part);

}  // namespace hone
