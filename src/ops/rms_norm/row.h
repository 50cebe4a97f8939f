// RMS norm on the CPU, forward and backward, shared by rms_norm, add_rms_norm and qk_norm.
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/rows.h"

namespace hone {

// Computes y = x * rstd * weight over n elements and returns rstd = 1 / sqrt(mean(x^2) + epsilon).
template <class T>
Accumulator<T> rms_norm_row(const T* x, const T* weight, std::int64_t n, Accumulator<T> epsilon, T* y) {
  using A = Accumulator<T>;
  const A squares = lane_sum<A>(n, [&](std::int64_t i) { return widen(x[i]) * widen(x[i]); });
  const A rstd = A(1) / std::sqrt(squares / static_cast<A>(n) + epsilon);
  for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(widen(x[i]) * rstd * widen(weight[i]));
  return rstd;
}

// Computes dx = rstd * (w dy - x rstd^2 mean(w dy x)).
template <class T>
void rms_norm_row_backward(const T* dy, const T* x, const T* weight, Accumulator<T> rstd, std::int64_t n, T* dx) {
  using A = Accumulator<T>;
  const A dot = lane_sum<A>(n, [&](std::int64_t i) { return widen(dy[i]) * widen(weight[i]) * widen(x[i]); });
  const A scale = dot * rstd * rstd / static_cast<A>(n);
  for (std::int64_t i = 0; i < n; ++i) {
    dx[i] = static_cast<T>(rstd * (widen(dy[i]) * widen(weight[i]) - widen(x[i]) * scale));
  }
}

// Adds dy x rstd to dweight, elements [begin, end).
template <class T>
void rms_norm_row_weight_gradient(const T* dy, const T* x, Accumulator<T> rstd, std::int64_t begin, std::int64_t end,
                                  Accumulator<T>* dweight) {
  for (std::int64_t i = begin; i < end; ++i) dweight[i] += widen(dy[i]) * widen(x[i]) * rstd;
}

// Backward pass of a norm. In and Out are RmsNormBackwardIn and RmsNormBackwardOut, or those of a fused operation with
// the same names. If `dsums` is not null, it is added to the norm's gradient after that has been rounded. dweight is
// summed in the order of rows.
template <class T, class In, class Out>
void rms_norm_backward(const KernelCall& call, const T* dsums) {
  using A = Accumulator<T>;
  const TensorView& x = call.in(In::x);
  const std::int64_t n = x.row_size();
  const std::int64_t rows = x.rows();
  const T* dys = call.in(In::dy).template as<T>();
  const T* xs = x.as<T>();
  const T* weight = call.in(In::weight).template as<T>();
  const A* rstds = call.in(In::rstd).template as<A>();
  T* dxs = call.out(Out::dx).template as<T>();
  for_rows(rows, 3 * n, [&](std::int64_t row) {
    T* dx = dxs + row * n;
    rms_norm_row_backward(dys + row * n, xs + row * n, weight, rstds[row], n, dx);
    if (dsums == nullptr) return;
    for (std::int64_t i = 0; i < n; ++i) dx[i] = static_cast<T>(widen(dsums[row * n + i]) + widen(dx[i]));
  });
  zero_tail(call.out(Out::dx));
  if (!call.in(In::dweight)) return;
  A* dweight = call.out(Out::dweight).template as<A>();
  parallel_for(n, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < rows; ++row) {
      rms_norm_row_weight_gradient(dys + row * n, xs + row * n, rstds[row], begin, end, dweight);
    }
  });
}

}  // namespace hone
