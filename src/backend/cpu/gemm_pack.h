// Packs blocks of matrices into the order in which the tile kernels read them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/block_scales.h"
#include "core/dtype.h"

namespace hone {

// Operand of a GEMM as a matrix [lines, depth]: lines are the rows of A or the columns of B, depth is k. Element
// (line, i) is at data[line * stride + i], or at data[i * stride + line] if `depth_major`.
struct PackSource {
  const void* data;
  DType dtype;
  std::int64_t stride;
  bool depth_major;
  BlockScales scales = {};  // of bytes of e4m3 (u8), whose lines are rows; packed as bf16(element x scale)
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

// A part of an e4m3 operand as bf16: at most 32 lines (a panel) and kScaleBlock elements of depth.
struct DequantizedPart {
  static constexpr std::int64_t kLines = 32;
  BFloat16 values[kLines * kScaleBlock];

  // Fills the part with a range of `source` and returns the source and the range that stand for it.
  [[nodiscard]] PackSource fill(const PackSource& source, const PackRange& range);
};

// Calls body(bf16 source, range, line, depth) for all parts of a range: a panel of `width` lines, which begins at index
// `line` of the range, by at most kScaleBlock elements, which begin at index `depth`.
template <class Body>
void for_dequantized_parts(const PackSource& source, const PackRange& range, std::int64_t width, const Body& body) {
  alignas(64) DequantizedPart part;
  for (std::int64_t line = 0; line < range.lines; line += width) {
    const std::int64_t lines = std::min(width, range.lines - line);
    for (std::int64_t depth = 0; depth < range.depth; depth += kScaleBlock) {
      const std::int64_t count = std::min(kScaleBlock, range.depth - depth);
      const PackSource filled = part.fill(source, {range.first + line, lines, range.begin + depth, count});
      body(filled, PackRange{0, lines, 0, count}, line, depth);
    }
  }
}

}  // namespace hone
