// A residual addition and the RMS norm that follows it.
#pragma once

#include <utility>

#include "ops/rms_norm/rms_norm.h"
#include "program/program.h"

namespace hone {

// x and residual [rows, n], weight [n] -> (sum, normalised): bitwise add(x, residual) and rms_norm of it, gradients
// included.
[[nodiscard]] std::pair<Tensor, Tensor> add_rms_norm(Tensor x, Tensor residual, Tensor weight,
                                                     const RmsNormAttributes& attributes);

}  // namespace hone
