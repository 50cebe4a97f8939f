// Building blocks of row-wise CPU kernels. Results do not depend on the number of threads or on the instruction set.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

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
