// Quantization of few rows on a GPU, as in decoding: 16 threads have a block of 1 x 128, eight columns each. The bits
// are those of a tile (tile.cuh), of which few rows would fill little.
#pragma once

#include "ops/quantize/tile.cuh"

namespace hone {

inline constexpr std::int64_t kFewQuantizedRows = 256;

// Returns true if a matrix is quantized in this form.
[[nodiscard]] inline bool has_few_rows(const QuantizedViews& to) {
  return to.columns == nullptr && to.capacity <= kFewQuantizedRows;
}
// The grid of blocks of kTileThreads.
[[nodiscard]] inline unsigned few_rows_blocks(const QuantizedViews& to) {
  return static_cast<unsigned>(ceil_div(to.capacity * (to.k / kTileColumns), kTileThreads));
}

// Quantizes the matrix: words(row, column, words) gives eight columns of a row in use as four pairs of bf16.
template <class Words>
__device__ void quantize_few_rows(const QuantizedViews& to, std::int64_t used, const Words& words_of) {
  const auto across = static_cast<int>(to.k / kTileColumns);
  const int part = static_cast<int>(blockIdx.x) * kTileThreads + static_cast<int>(threadIdx.x);
  const std::int64_t row = part / across;
  const std::int64_t column = part % across * kTileColumns;
  std::uint32_t words[4] = {};
  if (row < used) words_of(row, column, words);
  std::uint32_t most = pair_max(pair_max(magnitudes(words[0]), magnitudes(words[1])),
                                pair_max(magnitudes(words[2]), magnitudes(words[3])));
#pragma unroll
  for (int lane = 8; lane > 0; lane /= 2) most = pair_max(most, __shfl_xor_sync(0xFFFFFFFFu, most, lane));
  if (row >= to.capacity) return;
  const std::uint32_t scale = e4m3_scale_bits(max(most & 0xFFFFu, most >> 16));
  const std::uint32_t twice = e4m3_factor(scale) * 0x10001u;
  *reinterpret_cast<uint2*>(to.rows + row * to.k + column) = twice != 0 ? e4m3_eight(words, twice) : uint2{};
  if (threadIdx.x % 16 == 0) to.row_scale[column / kTileSide * to.capacity + row] = __uint_as_float(scale);
}

}  // namespace hone
