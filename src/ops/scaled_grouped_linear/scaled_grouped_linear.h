// Linear layers of all experts of a mixture (ops/grouped_linear) whose operands are in e4m3 with scales (ops/quantize).
#pragma once

#include <cstddef>

#include "ops/grouped_linear/grouped_linear.h"
#include "ops/quantize/quantize.h"
#include "program/program.h"

namespace hone {

// Indices of the inputs. Those after `start` are for gradients and may be missing. The input gradient has those before,
// with dy as x.
struct ScaledGroupedLinearIn {
  enum : std::size_t { x, x_scale, weight, weight_scale, start, rows, source, kept, kept_scale };
};

// Operands that only gradients read.
struct ScaledGroupedSources {
  Tensor rows;           // bf16 [rows, k], from which x was quantized; none if the weight is not trained
  Tensor weight;         // bf16 [experts x n, k], from which the weight was quantized; none without gradients
  QuantizedWeight kept;  // the weight in e4m3; none: the backward pass quantizes it again
};

// Returns y bf16 [rows, n]: y[r] = W_e x[r] for the rows r from start[e] to start[e + 1], for x [rows, k], weight
// [experts x n, k], one matrix below the other, both in e4m3, and start i32 [experts + 1]; n and k are multiples of
// 128. Products of each 128 terms are summed, multiplied by both scales and added in f32, in ascending order; y is
// rounded once. A row does not depend on other rows. Rows that no expert has are 0. The backward pass quantizes dy and
// computes
//
//   dx = dy W        in e4m3, by the same copy of the weight
//   dW += dy^T x     in bf16, by grouped_linear's product of dy and sources.rows
//
// as gradients of x and of sources.weight. dW sums over the tokens of an expert, whose first row may be any, so scales
// for blocks of 128 tokens would need rows in another order. Throws Error if the types do not fit.
[[nodiscard]] Tensor scaled_grouped_linear(const QuantizedRows& x, const QuantizedWeight& weight, Tensor start,
                                           const GroupedLinearAttributes& attributes,
                                           const ScaledGroupedSources& sources);

}  // namespace hone
