// Rows of tokens that the ranks of a tensor group divide between its sums (sequence parallelism, Korthikanti et al.,
// "Reducing activation recomputation in large transformer models", 2022). Of a value [tokens:capacity, ...] rank r has
// the rows from r x block on, block = ceil(capacity / ranks), as a value [block, ...] without a count. Its rows past
// the last token hold finite values, and zeros in a gradient.
//
// The ranks of a group must run the same of these operations in the same order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace hone {

// Indices of the inputs.
struct RankRowsSumIn {
  enum : std::size_t { x, bias };
};

struct RankRowsAttributes {
  std::int64_t ranks = 1;

  template <class Visitor>
  void fields(Visitor& v) {
    v("ranks", ranks);
  }
};

struct RankRowsGatherAttributes {
  std::int64_t ranks = 1;
  std::int64_t capacity = 0;  // rows of the whole value
  bool entered = false;       // see gather_rank_rows()

  template <class Visitor>
  void fields(Visitor& v) {
    v("ranks", ranks);
    v("capacity", capacity);
    v("entered", entered);
  }
};

// Returns this rank's rows of the sum over all ranks, in their order, of x [tokens:capacity, n], rounded to x's dtype,
// plus bias [n] or none, which all ranks have and is rounded again. The gradient of x is gathered from all ranks; that
// of the bias is this rank's addend.
[[nodiscard]] Tensor sum_rank_rows(Tensor x, std::int64_t ranks, Tensor bias = {});

// Returns [tokens:capacity, ...], the rows x [block, ...] of all ranks. Rows past the count are zero. entered: an
// operand of a divided operation, whose gradient is the sum of those of all ranks; otherwise all ranks compute the same
// from it and have the same gradient.
[[nodiscard]] Tensor gather_rank_rows(Tensor x, const RankRowsGatherAttributes& attributes);

// Returns this rank's rows of x [tokens:capacity, ...], which all ranks have. The gradient is gathered from all ranks.
[[nodiscard]] Tensor take_rank_rows(Tensor x, std::int64_t ranks);

// Returns true if an operation gathers rows.
[[nodiscard]] bool gathers_rank_rows(const Op& op);

}  // namespace hone
