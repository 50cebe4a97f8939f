// Linear layers of all experts of a mixture (ops/grouped_linear) whose operands are in e4m3 with scales, and the
// products of their backward pass.
#pragma once

#include <cstddef>

#include "ops/grouped_linear/grouped_linear.h"
#include "ops/quantize_experts/quantize_experts.h"
#include "program/program.h"

namespace hone {

// Indices of the inputs. Those after `start` are for gradients and may be missing. The input gradient has those before,
// with dy as x.
struct ScaledGroupedLinearIn {
  enum : std::size_t { x, x_scale, weight, weight_scale, start, x_columns, x_column_scale, source, kept, kept_scale };
};
struct ScaledGroupedWeightGradientIn {
  enum : std::size_t { dy, dy_scale, x, x_scale, start, dweight, accumulated };
};

// Operands that only gradients read.
struct ScaledGroupedSources {
  Tensor weight;         // bf16 [experts x n, k], from which the weight was quantized; none without gradients
  QuantizedWeight kept;  // the weight in e4m3; none: the backward pass quantizes it again
};

// Returns y bf16 [rows, n]: y[r] = W_e x[r] for the rows r from start[e] to start[e + 1], for x [rows, k], weight
// [experts x n, k], one matrix below the other, both in e4m3, and start i32 [experts + 1]; n and k are multiples of
// 128. On a GPU products of each 128 terms are summed, multiplied by both scales and added in f32, in ascending order;
// on a CPU the sums are those of grouped_linear() of the widened operands. y is rounded once. A row does not depend on
// other rows. start[experts] is the number of rows in use, and rows after it are 0. The backward pass quantizes dy and
// computes
//
//   dx = dy W        by the rows of dy and the same copy of the weight
//   dW += dy^T x     by the columns of dy and x.columns, which quantize_experts() makes, in blocks of 128 x 128 for x
//
// as gradients of x and of sources.weight, which the first micro-batch of a step overwrites as that of
// grouped_linear(). x.columns may be missing if the weight is not trained. Throws Error if the types do not fit.
[[nodiscard]] Tensor scaled_grouped_linear(const QuantizedRows& x, const QuantizedWeight& weight, Tensor start,
                                           const GroupedLinearAttributes& attributes,
                                           const ScaledGroupedSources& sources);

}  // namespace hone
