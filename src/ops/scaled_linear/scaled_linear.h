// Linear layer whose operands are in e4m3 with scales (ops/quantize), and the products of its backward pass.
#pragma once

#include <cstddef>
#include <string_view>

#include "ops/quantize/quantize.h"
#include "program/program.h"

namespace hone {

// Indices of the inputs. What only the gradient reads may be missing if there is none.
struct ScaledLinearIn {
  enum : std::size_t {
    x,
    x_scale,
    weight,
    weight_scale,
    bias,
    x_columns,
    x_column_scale,
    source,
    turned,
    turned_scale
  };
};
struct ScaledLinearWeightGradientIn {
  enum : std::size_t { dy, dy_scale, x, x_scale, dweight, accumulated };
};

struct ScaledLinearAttributes {
  // Any number of rows, and each row has the same bits whatever the others are: for generation. The scales of the
  // weight are then [n / 128, k / 128], as model folders have them, and there is no gradient.
  bool any_rows = false;

  template <class Visitor>
  void fields(Visitor& v) {
    v("any_rows", any_rows);
  }
};

// Throws Error unless the input is f32 of this shape.
void expect_scale(InputTypes inputs, std::size_t input, const Shape& shape, std::string_view op);

// Returns y bf16 [rows, n] = x W^T + bias for x [rows, k] and weight [n, k] in e4m3 and bias bf16 [n] or none. Sums are
// f32, and y is rounded once. The backward pass quantizes dy and computes
//
//   dx = dy W        by the rows of dy and W^T in e4m3
//   dW += dy^T x     by the columns of dy and x.columns
//
// as gradients of x and of `source`, the weight in bf16 that `weight` was quantized from, and dbias += dy. It quantizes
// W^T, unless `transposed` is that. Rows past the count are bias, or 0 on a CPU. Throws Error if the types do not fit.
[[nodiscard]] Tensor scaled_linear(const QuantizedRows& x, const QuantizedWeight& weight, Tensor bias, Tensor source,
                                   const QuantizedWeight& transposed = {});

// Returns the same y without gradients for any number of rows (ScaledLinearAttributes::any_rows).
[[nodiscard]] Tensor scaled_linear_of_any_rows(const QuantizedRows& x, const QuantizedWeight& weight, Tensor bias);

}  // namespace hone
