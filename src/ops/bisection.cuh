// Search in ascending bounds on the device: the document of a token, the expert of a row.
#pragma once

#include <cstdint>

#include "backend/gpu/kernel.cuh"

namespace hone {

// Returns the last i below `count` for which key(i) <= value. key(0), key(1), ... ascend, and key(0) is.
template <class Key>
[[nodiscard]] __device__ std::int64_t last_up_to(std::int64_t value, std::int64_t count, const Key& key) {
  std::int64_t low = 0;
  std::int64_t high = count;
  while (low + 1 < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (key(middle) <= value) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// The same for bounds [count], of which neighbours may be equal.
[[nodiscard]] __device__ inline std::int64_t last_up_to(std::int64_t value, const std::int32_t* bounds,
                                                        std::int64_t count) {
  return last_up_to(value, count, [&](std::int64_t i) { return bounds[i]; });
}

}  // namespace hone
