// A residual addition and the layer norm that follows it.
#pragma once

#include <utility>

#include "ops/layer_norm/layer_norm.h"
#include "program/program.h"

namespace hone {

// x and residual [rows, n], weight and bias [n] -> (sum, normalised): bitwise add(x, residual) and layer_norm of it,
// gradients included.
[[nodiscard]] std::pair<Tensor, Tensor> add_layer_norm(Tensor x, Tensor residual, Tensor weight, Tensor bias,
                                                       const LayerNormAttributes& attributes);

}  // namespace hone
