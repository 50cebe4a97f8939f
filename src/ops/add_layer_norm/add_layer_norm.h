// Residual addition and the layer norm that follows it, fused into one operation.
#pragma once

#include <cstddef>
#include <utility>

#include "ops/layer_norm/layer_norm.h"
#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct AddLayerNormIn {
  enum : std::size_t { x, residual, weight, bias };
};
struct AddLayerNormOut {
  enum : std::size_t { sum, y, mean, rstd };
};
struct AddLayerNormBackwardIn {
  enum : std::size_t { dsum, dy, x, weight, mean, rstd, dweight, dbias };
};
struct AddLayerNormBackwardOut {
  enum : std::size_t { dx, dweight, dbias };
};

// Returns (sum, normalised), each [rows, n], for x and residual [rows, n] and weight and bias [n] of one dtype: bitwise
// add(x, residual) and the layer_norm of it, gradients included. Throws Error if the types do not fit.
[[nodiscard]] std::pair<Tensor, Tensor> add_layer_norm(Tensor x, Tensor residual, Tensor weight, Tensor bias,
                                                       const LayerNormAttributes& attributes);

}  // namespace hone
