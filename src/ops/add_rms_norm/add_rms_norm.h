// Residual addition and the RMS norm that follows it, fused into one operation.
#pragma once

#include <cstddef>
#include <utility>

#include "ops/rms_norm/rms_norm.h"
#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
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

// Returns (sum, normalised), each [rows, n], for x and residual [rows, n] and weight [n] of one dtype: bitwise add(x,
// residual) and the rms_norm of it, gradients included. Throws Error if the types do not fit.
[[nodiscard]] std::pair<Tensor, Tensor> add_rms_norm(Tensor x, Tensor residual, Tensor weight,
                                                     const RmsNormAttributes& attributes);

}  // namespace hone
