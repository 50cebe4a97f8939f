// Building blocks of row-wise CPU kernels. Results do not depend on the number of threads or on the instruction set.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "backend/cpu/vector_math.h"
#include "core/dtype.h"
#include "core/parallel.h"
#include "program/kernel.h"

namespace hone {

template <class T>
[[nodiscard]] Accumulator<T> widen(T value) {
  return static_cast<Accumulator<T>>(value);
}

// Sum of f(0) .. f(n - 1) in a fixed order: lane i of 16 adds i, i + 16, ..., then the lanes are added as a tree.
template <class Sum, class Element>
[[nodiscard]] Sum lane_sum(std::int64_t n, const Element& f) {
  constexpr std::int64_t kLanes = 16;
  std::array<Sum, kLanes> lanes{};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += f(i + lane);
  }
  for (; i < n; ++i) lanes[i % kLanes] += f(i);
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// Element i of arrays, or the vector of elements that begins there: what the functions of for_lanes() and
// vector_lane_sum() are called with. at(p) reads from an array p, widened to A; at.store(p, value) writes.
template <class A>
struct ScalarAt {
  std::int64_t i;
  template <class T>
  [[nodiscard]] A operator()(const T* p) const {
    return widen(p[i]);
  }
  template <class T>
  void store(T* p, A value) const {
    p[i] = static_cast<T>(value);
  }
};
template <class A>
struct VectorAt {
  std::int64_t i;
  template <class T>
  [[nodiscard]] typename Lanes<A>::Vector operator()(const T* p) const {
    return Lanes<A>::load(p + i);
  }
  template <class T>
  void store(T* p, typename Lanes<A>::Vector value) const {
    Lanes<A>::store(p + i, value);
  }
};

// Calls f for all of n elements, most of them a vector at a time.
template <class A, class F>
void for_lanes(std::int64_t n, const F& f) {
  constexpr std::int64_t kCount = Lanes<A>::kCount;
  std::int64_t i = 0;
  for (; i + kCount <= n; i += kCount) f(VectorAt<A>{i});
  for (; i < n; ++i) f(ScalarAt<A>{i});
}

// lane_sum() of f in vectors, with the same bits.
template <class A, class F>
[[nodiscard]] A vector_lane_sum(std::int64_t n, const F& f) {
  constexpr std::int64_t kLanes = 16;
  constexpr std::int64_t kCount = Lanes<A>::kCount;
  typename Lanes<A>::Vector sums[kLanes / kCount] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t v = 0; v < kLanes / kCount; ++v) sums[v] += f(VectorAt<A>{i + v * kCount});
  }
  std::array<A, kLanes> lanes;
  for (std::int64_t v = 0; v < kLanes / kCount; ++v) Lanes<A>::store(lanes.data() + v * kCount, sums[v]);
  for (; i < n; ++i) lanes[i % kLanes] += f(ScalarAt<A>{i});
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// Calls body(row) for each row in [0, rows), spread over the threads; `work` is the approximate cost of a row in
// elements.
template <class Body>
void for_rows(std::int64_t rows, std::int64_t work, const Body& body) {
  const std::int64_t grain = 16384 / (work > 0 ? work : 1) + 1;
  parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) body(row);
  });
}

// Clears the rows past the count.
inline void zero_tail(const TensorView& view) {
  if (!view) return;
  const std::size_t row_bytes = static_cast<std::size_t>(view.row_size()) * size_of(view.dtype());
  const auto used = static_cast<std::size_t>(view.rows());
  std::memset(view.data + used * row_bytes, 0, (static_cast<std::size_t>(view.capacity()) - used) * row_bytes);
}

}  // namespace hone
