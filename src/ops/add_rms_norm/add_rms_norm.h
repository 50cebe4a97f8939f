// A residual addition and the RMS norm that follows it.
#pragma once

#include <cstddef>
#include <utility>

#include "ops/rms_norm/rms_norm.h"
#include "program/program.h"

namespace hone {

// The operands, in order.
struct AddRmsNormIn {
  enum : std::size_t { x, residual, weight };
};
struct AddRmsNormOut {
  enum : std::size_t { sum, y, rstd };
};
struct AddRmsNormBackwardIn {
  enum : std::size_t { dsum, dy, x, weight, rstd, dweight };
};
struct AddRmsNormBackwardOut {
  enum : std::size_t { dx, dweight };
};

// x and residual [rows, n], weight [n] -> (sum, normalised): bitwise add(x, residual) and rms_norm of it, gradients
// included.
[[nodiscard]] std::pair<Tensor, Tensor> add_rms_norm(Tensor x, Tensor residual, Tensor weight,
                                                     const RmsNormAttributes& attributes);

}  // namespace hone
