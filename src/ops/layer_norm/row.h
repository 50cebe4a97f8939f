// A layer norm on the CPU, forward and backward, for the operations that hold one.
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

// y = (x - mean) * rstd * weight + bias over n elements.
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

// With g = w dy and z = (x - mean) rstd: dx = rstd * (g - mean(g) - z mean(g z))
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

// The backward pass of a norm whose inputs from `first` on are dy, x, weight, mean, rstd and, where they are trained,
// the gradients of weight and bias so far; outputs: dx and those two. `dsums`, where there is one, is added to the
// norm's gradient after that was rounded. The gradients of weight and bias are summed in the order of rows.
template <class T>
void layer_norm_backward(const KernelCall& call, std::size_t first, const T* dsums) {
  using A = Accumulator<T>;
  const TensorView& x = call.in(first + 1);
  const std::int64_t n = x.row_size();
  const std::int64_t rows = x.rows();
  const T* dys = call.in(first).as<T>();
  const T* xs = x.as<T>();
  const T* weight = call.in(first + 2).as<T>();
  const A* means = call.in(first + 3).as<A>();
  const A* rstds = call.in(first + 4).as<A>();
  T* dxs = call.out(0).as<T>();
  for_rows(rows, 4 * n, [&](std::int64_t row) {
    T* dx = dxs + row * n;
    layer_norm_row_backward<T>(dys + row * n, xs + row * n, weight, {means[row], rstds[row]}, n, dx);
    if (dsums == nullptr) return;
    for (std::int64_t i = 0; i < n; ++i) dx[i] = static_cast<T>(widen(dsums[row * n + i]) + widen(dx[i]));
  });
  zero_tail(call.out(0));
  if (!call.in(first + 5)) return;
  A* dweight = call.out(1).as<A>();
  A* dbias = call.out(2).as<A>();
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
