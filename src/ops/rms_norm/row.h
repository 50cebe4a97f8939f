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
  const A squares = vector_lane_sum<A>(n, [&](const auto& at) { return at(x) * at(x); });
  const A rstd = A(1) / std::sqrt(squares / static_cast<A>(n) + epsilon);
  for_lanes<A>(n, [&](const auto& at) { at.store(y, at(x) * rstd * at(weight)); });
  return rstd;
}

// Computes dx = rstd * (w dy - x rstd^2 mean(w dy x)).
template <class T>
void rms_norm_row_backward(const T* dy, const T* x, const T* weight, Accumulator<T> rstd, std::int64_t n, T* dx) {
  using A = Accumulator<T>;
  const A dot = vector_lane_sum<A>(n, [&](const auto& at) { return at(dy) * at(weight) * at(x); });
  const A scale = dot * rstd * rstd / static_cast<A>(n);
  for_lanes<A>(n, [&](const auto& at) { at.store(dx, rstd * (at(dy) * at(weight) - at(x) * scale)); });
}

// The operands of one row's share in the gradient of a norm's weight.
template <class T>
struct NormRow {
  const T* dy;
  const T* x;
  Accumulator<T> rstd;
};

// Adds the sum over rows and their heads of dy x rstd to dweight, elements [begin, end), in the order of rows and,
// within a row, of heads. row_of(row, head) returns the NormRow. Sixteen elements at a time are summed in registers.
template <class T, class RowOf>
void rms_norm_weight_gradient(std::int64_t rows, std::int64_t heads, std::int64_t begin, std::int64_t end,
                              const RowOf& row_of, Accumulator<T>* dweight) {
  using A = Accumulator<T>;
  constexpr std::int64_t kCount = Lanes<A>::kCount;
  constexpr std::int64_t kVectors = 16 / kCount;
  const auto for_all_rows = [&](const auto& add) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t head = 0; head < heads; ++head) add(row_of(row, head));
    }
  };
  std::int64_t first = begin;
  for (; first + 16 <= end; first += 16) {
    typename Lanes<A>::Vector sums[kVectors];
    for (std::int64_t v = 0; v < kVectors; ++v) sums[v] = Lanes<A>::load(dweight + first + v * kCount);
    for_all_rows([&](const NormRow<T>& row) {
      for (std::int64_t v = 0; v < kVectors; ++v) {
        const VectorAt<A> at{first + v * kCount};
        sums[v] += at(row.dy) * at(row.x) * row.rstd;
      }
    });
    for (std::int64_t v = 0; v < kVectors; ++v) Lanes<A>::store(dweight + first + v * kCount, sums[v]);
  }
  if (first == end) return;
  for_all_rows([&](const NormRow<T>& row) {
    for (std::int64_t i = first; i < end; ++i) dweight[i] += widen(row.dy[i]) * widen(row.x[i]) * row.rstd;
  });
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
  const auto row_of = [&](std::int64_t row, std::int64_t) {
    return NormRow<T>{dys + row * n, xs + row * n, rstds[row]};
  };
  parallel_for(n, 64, [&](std::int64_t begin, std::int64_t end) {
    rms_norm_weight_gradient<T>(rows, 1, begin, end, row_of, dweight);
  });
}

}  // namespace hone
