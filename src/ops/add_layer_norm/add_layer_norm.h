// A residual addition and the layer norm that follows it.
#pragma once

#include <cstddef>
#include <utility>

#include "ops/layer_norm/layer_norm.h"
#include "program/program.h"

namespace hone {

// The operands, in order.
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

// x and residual [rows, n], weight and bias [n] -> (sum, normalised): bitwise add(x, residual) and layer_norm of it,
// gradients included.
[[nodiscard]] std::pair<Tensor, Tensor> add_layer_norm(Tensor x, Tensor residual, Tensor weight, Tensor bias,
                                                       const LayerNormAttributes& attributes);

}  // namespace hone
