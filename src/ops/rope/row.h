// Rotation of one row on a CPU, shared by rope and rope_append.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/rope/rope.h"
#include "ops/rows.h"

namespace hone {

// Writes x [n] with its first heads rotated by `table` [rotated_dim], cosines and then sines, to y [n].
template <class T>
void rotate_row(const T* x, const float* table, std::int64_t n, const RopeAttributes& attributes, T* y) {
  using A = Accumulator<T>;
  const std::int64_t half = attributes.rotated_dim() / 2;
  const std::int64_t step = attributes.interleaved ? 2 : 1;         // from a pair's first element to the next pair's
  const std::int64_t distance = attributes.interleaved ? 1 : half;  // between the elements of a pair
  const A sign = attributes.inverse ? A(-1) : A(1);
  for (std::int64_t head = 0; head < attributes.heads; ++head) {
    const T* in = x + head * attributes.head_dim;
    T* out = y + head * attributes.head_dim;
    out = std::copy_n(in, attributes.offset, out);
    in += attributes.offset;
    for (std::int64_t i = 0; i < half; ++i) {
      const A first = widen(in[i * step]);
      const A second = widen(in[i * step + distance]);
      const A cosine = static_cast<A>(table[i]);
      const A sine = sign * static_cast<A>(table[half + i]);
      out[i * step] = static_cast<T>(first * cosine - second * sine);
      out[i * step + distance] = static_cast<T>(second * cosine + first * sine);
    }
  }
  const std::int64_t rotated = attributes.heads * attributes.head_dim;
  std::copy(x + rotated, x + n, y + rotated);
}

}  // namespace hone
