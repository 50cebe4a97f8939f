// Layer normalisation (Ba et al., 2016): y = (x - mean) * rstd * weight + bias, rstd = 1 / sqrt(mean((x - mean)^2) +
// epsilon).
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct LayerNormIn {
  enum : std::size_t { x, weight, bias };
};
struct LayerNormOut {
  enum : std::size_t { y, mean, rstd };
};
struct LayerNormBackwardIn {
  enum : std::size_t { dy, x, weight, mean, rstd, dweight, dbias };
};
struct LayerNormBackwardOut {
  enum : std::size_t { dx, dweight, dbias };
};

struct LayerNormAttributes {
  double epsilon = 1e-5;

  template <class Visitor>
  void fields(Visitor& v) {
    v("epsilon", epsilon);
  }
};

// Returns y [rows, n] for x [rows, n] and weight and bias [n] of one dtype. Both means are computed in f32 (f64 for
// f64) and y is rounded once. Weight and bias may each be trainable or not. Throws Error if the types do not fit.
[[nodiscard]] Tensor layer_norm(Tensor x, Tensor weight, Tensor bias, const LayerNormAttributes& attributes);

}  // namespace hone
