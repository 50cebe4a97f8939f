// Layer norm on the CPU, forward and backward, shared by layer_norm and add_layer_norm.
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/rows.h"

namespace hone {

template <class T>
struct LayerNormStatistics {
  Accumulator<T> mean;
  Accumulator<T> rstd;
};

// Computes y = (x - mean) * rstd * weight + bias over n elements and returns the statistics.
template <class T>
LayerNormStatistics<T> layer_norm_row(const T* x, const T* weight, const T* bias, std::int64_t n,
                                      Accumulator<T> epsilon, T* y) {
  using A = Accumulator<T>;
  const A mean = lane_sum<A>(n, [&](std::int64_t i) { return widen(x[i]); }) / static_cast<A>(n);
  const A squares = lane_sum<A>(n, [&](std::int64_t i) {
    const A centred = widen(x[i]) - mean;
    return centred * centred;
  });
  const A rstd = A(1) / std::sqrt(squares / static_cast<A>(n) + epsilon);
  for (std::int64_t i = 0; i < n; ++i) {
    y[i] = static_cast<T>((widen(x[i]) - mean) * rstd * widen(weight[i]) + widen(bias[i]));
  }
  return {mean, rstd};
}

// Computes dx = rstd * (g - mean(g) - z mean(g z)), where g = w dy and z = (x - mean) rstd.
template <class T>
void layer_norm_row_backward(const T* dy, const T* x, const T* weight, const LayerNormStatistics<T>& s, std::int64_t n,
                             T* dx) {
  using A = Accumulator<T>;
  const auto g = [&](std::int64_t i) { return widen(dy[i]) * widen(weight[i]); };
  const auto z = [&](std::int64_t i) { return (widen(x[i]) - s.mean) * s.rstd; };
  const A mean = lane_sum<A>(n, g) / static_cast<A>(n);
  const A slope = lane_sum<A>(n, [&](std::int64_t i) { return g(i) * z(i); }) / static_cast<A>(n);
  for (std::int64_t i = 0; i < n; ++i) dx[i] = static_cast<T>(s.rstd * (g(i) - mean - z(i) * slope));
}

// Backward pass of a norm. In and Out are LayerNormBackwardIn and LayerNormBackwardOut, or those of a fused operation
// with the same names. If `dsums` is not null, it is added to the norm's gradient after that has been rounded. The
// gradients of weight and bias are summed in the order of rows.
template <class T, class In, class Out>
void layer_norm_backward(const KernelCall& call, const T* dsums) {
  using A = Accumulator<T>;
  const TensorView& x = call.in(In::x);
  const std::int64_t n = x.row_size();
  const std::int64_t rows = x.rows();
  const T* dys = call.in(In::dy).template as<T>();
  const T* xs = x.as<T>();
  const T* weight = call.in(In::weight).template as<T>();
  const A* means = call.in(In::mean).template as<A>();
  const A* rstds = call.in(In::rstd).template as<A>();
  T* dxs = call.out(Out::dx).template as<T>();
  for_rows(rows, 4 * n, [&](std::int64_t row) {
    T* dx = dxs + row * n;
    layer_norm_row_backward<T>(dys + row * n, xs + row * n, weight, {means[row], rstds[row]}, n, dx);
    if (dsums == nullptr) return;
    for (std::int64_t i = 0; i < n; ++i) dx[i] = static_cast<T>(widen(dsums[row * n + i]) + widen(dx[i]));
  });
  zero_tail(call.out(Out::dx));
  if (!call.in(In::dweight)) return;
  A* dweight = call.out(Out::dweight).template as<A>();
  A* dbias = call.out(Out::dbias).template as<A>();
  parallel_for(n, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const T* dy = dys + row * n;
      for (std::int64_t i = begin; i < end; ++i) {
        dweight[i] += widen(dy[i]) * ((widen(xs[row * n + i]) - means[row]) * rstds[row]);
        dbias[i] += widen(dy[i]);
      }
    }
  });
}

}  // namespace hone
