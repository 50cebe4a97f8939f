// Root mean square normalisation (Zhang and Sennrich, 2019): y = x * rstd * weight, rstd = 1 / sqrt(mean(x^2) +
// epsilon).
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct RmsNormIn {
  enum : std::size_t { x, weight };
};
struct RmsNormOut {
  enum : std::size_t { y, rstd };
};
struct RmsNormBackwardIn {
  enum : std::size_t { dy, x, weight, rstd, dweight };
};
struct RmsNormBackwardOut {
  enum : std::size_t { dx, dweight };
};

struct RmsNormAttributes {
  double epsilon = 1e-6;

  template <class Visitor>
  void fields(Visitor& v) {
    v("epsilon", epsilon);
  }
};

// Returns y [rows, n] for x [rows, n] and weight [n]. The mean is computed in f32 (f64 for f64) and y is rounded once.
// Rows past the count are zero. Throws Error if the shapes do not fit.
[[nodiscard]] Tensor rms_norm(Tensor x, Tensor weight, const RmsNormAttributes& attributes);

}  // namespace hone
