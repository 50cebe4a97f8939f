// Rows of the tokens of a context group, whose ranks have different tokens of the same micro-batch: gathering them from
// all ranks in the order of the micro-batch, and back. Operands `rows` and `tokens` are those of ContextInputs
// (program/context_builder.h), which say who has which token.
//
// The ranks of a group must run the same of these operations in the same order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace hone {

// Indices of the inputs.
struct ContextGatherIn {
  enum : std::size_t { x, rows };
};
struct ContextScatterIn {
  enum : std::size_t { sums, to, rows };
};
struct ContextTakeIn {
  enum : std::size_t { x, tokens };
};
struct ContextPlaceIn {
  enum : std::size_t { dy, tokens };
};

struct ContextColumns {
  std::int64_t first = 0;  // of the columns of this rank's rows

  template <class Visitor>
  void fields(Visitor& v) {
    v("first", first);
  }
};

struct ContextPlaceAttributes {
  std::int64_t tokens = 0;

  template <class Visitor>
  void fields(Visitor& v) {
    v("tokens", tokens);
  }
};

// Returns [ranks x capacity, n - first], or [ranks x capacity], without a count: the columns from columns.first on of
// the rows x [capacity, n] or [capacity], counted by tokens, of all ranks, in the order of the micro-batch. Rows past
// its last token are zero. If all columns are gathered, the gradient is the sum over the ranks of that of this rank's
// rows.
[[nodiscard]] Tensor context_gather(Tensor x, Tensor rows, const ContextColumns& columns = {});

// Returns `to`, whose columns from columns.first on are overwritten: with this rank's rows of the sum over the ranks,
// in their order, of `sums`, which has the type of a context_gather(). Other columns stay; rows past the count become
// zero in these columns.
[[nodiscard]] Tensor context_scatter(Tensor sums, Tensor to, Tensor rows, const ContextColumns& columns = {});

// Returns the sum over the ranks of x, which has no count, in their order. The gradient is the sum of theirs.
[[nodiscard]] Tensor context_sum(Tensor x);

// Returns this rank's rows, counted by tokens, of x [ranks x capacity, ...] in the order of the micro-batch. The
// gradient has zeros for tokens of other ranks.
[[nodiscard]] Tensor context_take(Tensor x, Tensor tokens);

}  // namespace hone
