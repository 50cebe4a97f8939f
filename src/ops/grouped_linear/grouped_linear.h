// Linear layers of all experts of a mixture, each over its own rows, and the GEMMs of the backward pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace hone {

// Indices of the inputs.
struct GroupedLinearIn {
  enum : std::size_t { x, weight, start };
};
struct GroupedLinearInputGradientIn {
  enum : std::size_t { dy, weight, start };
};
struct GroupedLinearWeightGradientIn {
  enum : std::size_t { dy, x, start, dweight, accumulated };
};

struct GroupedLinearAttributes {
  std::int64_t experts = 1;
  double share = 1;  // of the rows, those that experts have on average; the cost counts them

  template <class Visitor>
  void fields(Visitor& v) {
    v("experts", experts);
    v("share", share);
  }
};

// Returns y [rows, n] for x [rows, k], weight [experts x n, k] (one matrix below the other) and start i32 [experts + 1]
// (ops/expert_order): y[r] = W_e x[r] for the rows r from start[e] to start[e + 1]. A row of y is bitwise that of
// linear() and does not depend on other rows. The gradient of W_e is summed over its rows in ascending order and, with
// GradientBuilder::accumulated(), written by the first micro-batch of a step as if dweight were zero before. Throws
// Error if the types do not fit.
[[nodiscard]] Tensor grouped_linear(Tensor x, Tensor weight, Tensor start, const GroupedLinearAttributes& attributes);

}  // namespace hone
