// The affine map y = x W^T + bias.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// The operands, in order.
struct LinearIn {
  enum : std::size_t { x, weight, bias };
};
struct LinearInputGradientIn {
  enum : std::size_t { dy, weight };
};
struct LinearWeightGradientIn {
  enum : std::size_t { dy, x, dweight };
};
struct LinearBiasGradientIn {
  enum : std::size_t { dy, dbias };
};
// What linear, linear_input_gradient and linear_weight_gradient multiply.
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

// x [rows, k], weight [n, k], bias [n] or none, of one dtype -> y [rows, n]. An element is one chain of fused
// multiply-adds over k in f32 (f64), plus the bias, rounded once: a row does not depend on the number of rows. Rows
// past the count are zero.
[[nodiscard]] Tensor linear(Tensor x, Tensor weight, Tensor bias = {}, const LinearAttributes& attributes = {});

// a [m, k], b [k, n] -> a b, of b's type.
[[nodiscard]] Tensor product(Tensor a, Tensor b);

// a [k, m], b [k, n] of one type, sum [m, n] in its accumulator -> sum + a^T b, in the sum's place.
[[nodiscard]] Tensor transposed_product(Tensor a, Tensor b, Tensor sum);

// rows [rows, n], sum [n] in its accumulator -> sum + the rows in use, one after the other, in the sum's place.
[[nodiscard]] Tensor column_sum(Tensor rows, Tensor sum);

}  // namespace hone
