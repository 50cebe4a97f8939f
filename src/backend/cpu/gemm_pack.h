// Packs blocks of matrices into the order in which the tile kernels read them.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace hone {

// Operand of a GEMM as a matrix [lines, depth]: lines are the rows of A or the columns of B, depth is k. Element
// (line, i) is at data[line * stride + i], or at data[i * stride + line] if `depth_major`.
struct PackSource {
  const void* data;
  DType dtype;
  std::int64_t stride;
  bool depth_major;
};

// Block of lines [first, first + lines) and depths [begin, begin + depth).
struct PackRange {
  std::int64_t first, lines;
  std::int64_t begin, depth;
};

// Packs a range into panels of `width` lines: out[p * width * depth + i * width + j] is the element
// (first + p * width + j, begin + i), widened to f32; missing lines of the last panel are 0. `width` is the number of
// rows or columns of a tile (gemm_kernels.h). `out` has round_up(lines, width) * depth elements.
void pack(const PackSource& source, const PackRange& range, int width, float* out);
void pack(const PackSource& source, const PackRange& range, int width, double* out);

}  // namespace hone
