// Rotation of one row on a CPU, shared by rope and rope_append.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/rope/rope.h"
#include "ops/rows.h"

namespace hone {

// Writes x [n] with its first heads rotated by `table` [head_dim], cosines and then sines, to y [n].
template <class T>
void rotate_row(const T* x, const float* table, std::int64_t n, const RopeAttributes& attributes, T* y) {
  using A = Accumulator<T>;
  const std::int64_t half = attributes.head_dim / 2;
  const A sign = attributes.inverse ? A(-1) : A(1);
  for (std::int64_t head = 0; head < attributes.heads; ++head) {
    const T* in = x + head * attributes.head_dim;
    T* out = y + head * attributes.head_dim;
    for (std::int64_t i = 0; i < half; ++i) {
      const A first = widen(in[i]);
      const A second = widen(in[half + i]);
      const A cosine = static_cast<A>(table[i]);
      const A sine = sign * static_cast<A>(table[half + i]);
      out[i] = static_cast<T>(first * cosine - second * sine);
      out[half + i] = static_cast<T>(second * cosine + first * sine);
    }
  }
  const std::int64_t rotated = attributes.heads * attributes.head_dim;
  std::copy(x + rotated, x + n, y + rotated);
}

}  // namespace hone
