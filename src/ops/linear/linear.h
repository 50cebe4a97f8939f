// Linear layer, y = x W^T + bias, and the GEMMs of its backward pass as operations.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct LinearIn {
  enum : std::size_t { x, weight, bias };
};
struct LinearInputGradientIn {
  enum : std::size_t { dy, weight };
};
struct LinearWeightGradientIn {
  enum : std::size_t { dy, x, dweight, accumulated };
};
struct LinearBiasGradientIn {
  enum : std::size_t { dy, dbias };
};
// The two factors of linear, linear_input_gradient and linear_weight_gradient.
struct LinearFactorsIn {
  enum : std::size_t { a, b };
};

struct LinearAttributes {
  bool f32_output = false;  // y in f32 (f64 for f64) instead of in x's dtype

  template <class Visitor>
  void fields(Visitor& v) {
    v("f32_output", f32_output);
  }
};

// Returns y [rows, n] for x [rows, k], weight [n, k] and bias [n] or none, of one dtype. An element is one chain of
// fused multiply-adds over k in f32 (f64 for f64), plus the bias, rounded once: a row does not depend on the number of
// rows in use. Rows past the count are zero. Throws Error if the types do not fit.
[[nodiscard]] Tensor linear(Tensor x, Tensor weight, Tensor bias = {}, const LinearAttributes& attributes = {});

// Returns a b [m, n], of b's dtype, for a [m, k] and b [k, n].
[[nodiscard]] Tensor product(Tensor a, Tensor b);

// Returns sum + a^T b, in sum's storage, for a [k, m] and b [k, n] of one dtype and sum [m, n] of its accumulator type.
[[nodiscard]] Tensor transposed_product(Tensor a, Tensor b, Tensor sum);

// Returns sum + the sum of the rows in use, in sum's storage, for rows [rows, n] and sum [n] of its accumulator type.
// The order of the sum is fixed: one row after the other on a CPU, by slices of the rows on a GPU.
[[nodiscard]] Tensor column_sum(Tensor rows, Tensor sum);

}  // namespace hone
