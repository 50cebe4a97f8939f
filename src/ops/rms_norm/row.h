// One row of an RMS norm, forward and backward, for the operations that hold one.
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/rows.h"

namespace hone {

// y = x * rstd * weight over n elements; returns rstd = 1 / sqrt(mean(x^2) + epsilon).
template <class T>
Accumulator<T> rms_norm_row(const T* x, const T* weight, std::int64_t n, Accumulator<T> epsilon, T* y) {
  using A = Accumulator<T>;
  const A squares = lane_sum<A>(n, [&](std::int64_t i) { return widen(x[i]) * widen(x[i]); });
  const A rstd = A(1) / std::sqrt(squares / static_cast<A>(n) + epsilon);
  for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(widen(x[i]) * rstd * widen(weight[i]));
  return rstd;
}

// dx = rstd * (w dy - x rstd^2 mean(w dy x))
template <class T>
void rms_norm_row_backward(const T* dy, const T* x, const T* weight, Accumulator<T> rstd, std::int64_t n, T* dx) {
  using A = Accumulator<T>;
  const A dot = lane_sum<A>(n, [&](std::int64_t i) { return widen(dy[i]) * widen(weight[i]) * widen(x[i]); });
  const A scale = dot * rstd * rstd / static_cast<A>(n);
  for (std::int64_t i = 0; i < n; ++i) {
    dx[i] = static_cast<T>(rstd * (widen(dy[i]) * widen(weight[i]) - widen(x[i]) * scale));
  }
}

// dweight += dy x rstd, elements [begin, end)
template <class T>
void rms_norm_row_weight_gradient(const T* dy, const T* x, Accumulator<T> rstd, std::int64_t begin, std::int64_t end,
                                  Accumulator<T>* dweight) {
  for (std::int64_t i = begin; i < end; ++i) dweight[i] += widen(dy[i]) * widen(x[i]) * rstd;
}

}  // namespace hone
