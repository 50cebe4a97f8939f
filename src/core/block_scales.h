// The scales of a matrix whose elements are stored in FP8 (core/float8.h).
#pragma once

#include <cstdint>

namespace hone {

inline constexpr std::int64_t kScaleBlock = 128;  // rows and columns of a block that has one scale

// Element (row, column) has the scale data[row / rows * stride + column / kScaleBlock]. A matrix whose blocks begin at
// other rows than multiples of 128, because several tensors were put together, has fewer rows for each row of scales.
struct BlockScales {
  const float* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t rows = kScaleBlock;
};

// Number of blocks along a dimension of this size.
[[nodiscard]] constexpr std::int64_t scale_blocks(std::int64_t size) {
  return size / kScaleBlock + (size % kScaleBlock != 0 ? 1 : 0);  // no size overflows
}

}  // namespace hone
