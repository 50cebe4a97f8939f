// Copies of blocks of matrices in the order in which the tile kernels read them.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace hone {

// A matrix [lines, depth] seen from the sum: element (line, i) takes part in the i-th step of the chains of `line`.
// It lies at data[line * stride + i], or at data[i * stride + line] if `depth_major`.
struct PackSource {
  const void* data;
  DType dtype;
  std::int64_t stride;
  bool depth_major;
};

// Lines [first, first + lines), steps [begin, begin + depth).
struct PackRange {
  std::int64_t first, lines;
  std::int64_t begin, depth;
};

// Packs a range in panels of `width` lines: out[p * width * depth + i * width + j] is the element
// (first + p * width + j, begin + i), widened; lines past the end of the last panel are 0. `width` is that of a side of
// a tile (gemm_kernels.h); out holds round_up(lines, width) * depth elements.
void pack(const PackSource& source, const PackRange& range, int width, float* out);
void pack(const PackSource& source, const PackRange& range, int width, double* out);

}  // namespace hone
