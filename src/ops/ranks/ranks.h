// Sums over the ranks of a tensor group, between the parts of layers that are divided over it (Shoeybi et al.,
// "Megatron-LM: Training multi-billion parameter language models using model parallelism", 2019). Where a program
// enters the divided part, the value is the same on all ranks and its gradient is a sum; where it leaves, the value is
// a sum and its gradient is the same on all ranks.
//
// The ranks of a group must run the same of these operations in the same order. All of them get the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace hone {

// Indices of the inputs.
struct RanksSumIn {
  enum : std::size_t { x, bias };
};
struct RanksAccumulateIn {
  enum : std::size_t { dy, sum };
};

// Returns x, an activation or a weight that all ranks have, as an operand of a divided operation. Launches nothing. Its
// gradient is the sum of the gradients of all ranks.
[[nodiscard]] Tensor enter_ranks(Tensor x);

struct RanksGatherAttributes {
  std::int64_t ranks = 1;

  template <class Visitor>
  void fields(Visitor& v) {
    v("ranks", ranks);
  }
};

// Returns [rows, ranks x n], the columns of all ranks in their order, for this rank's columns x [rows, n]. It has no
// gradient. Rows past the count are zero.
[[nodiscard]] Tensor gather_ranks(Tensor x, std::int64_t ranks);

// Returns the sum over all ranks of x [rows, ...], rounded to x's dtype, plus bias [n] or none, which all ranks have
// and is rounded again. x may have one dimension if there is no bias. Rows past the count are zero.
[[nodiscard]] Tensor sum_ranks(Tensor x, Tensor bias = {});

}  // namespace hone
