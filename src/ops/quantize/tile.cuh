// Quantization of a tile of 128 x 128 on a GPU, which quantize and the operations that it is fused with share.
//
// A block of 256 threads has a tile. Thread t holds 8 rows x 8 columns of it in registers, packed as bf16:
//
//              columns 0-7   8-15  ...  120-127
//   rows 0-7      t = 0        1   ...    15        the scale of a row: maximum over 16 lanes of a warp
//   rows 8-15        16       17   ...    31        the scale of a column: maximum over the 8 rows of a thread,
//   ...                                             2 halves of a warp and 8 warps, the last by shared memory
//   rows 120-127    240      241   ...   255
//
// Rows are stored from registers, 128 bytes by half a warp. Columns are transposed through shared memory, whose units
// of 8 bytes (8 rows of one column) are swizzled, so that neither the stores nor the loads of a warp meet in a bank:
//
//   unit u of column c is at c * 16 + (u ^ (c / 8 % 16))
//
// Maxima do not depend on an order, so neither do the results.
#pragma once

#include <cuda_fp8.h>

#include "core/float8.h"
#include "ops/cuda_kernel.cuh"
#include "ops/fp8_linear/fp8_bits.cuh"
#include "ops/quantize/quantize.h"
#include "ops/quantize/views.h"

namespace hone {

inline constexpr int kTileThreads = 256;
inline constexpr int kTileSide = 128;
inline constexpr int kTileColumns = 8;  // of a thread, and rows

// The grid of blocks of kTileThreads for a matrix: tiles of a row of tiles first.
[[nodiscard]] inline unsigned tile_count(const QuantizedViews& to) {
  return static_cast<unsigned>(ceil_div(to.capacity, kTileSide) * (to.k / kTileSide));
}

// Position of the calling thread's part of its block's tile.
struct TilePart {
  std::int64_t row;     // first of 8
  std::int64_t column;  // first of 8
  __device__ explicit TilePart(std::int64_t k) {
    const auto across = static_cast<std::uint32_t>(k / kTileSide);
    const std::uint32_t tile_row = blockIdx.x / across;
    row = static_cast<std::int64_t>(tile_row) * kTileSide + threadIdx.x / 16 * kTileColumns;
    column = static_cast<std::int64_t>(blockIdx.x - tile_row * across) * kTileSide + threadIdx.x % 16 * kTileColumns;
  }
};

struct TileMemory {
  std::uint32_t warp_maxima[kTileThreads / 32];
  std::uint16_t maxima[kTileThreads / 32][kTileSide];  // of columns, by warp
  alignas(16) std::uint64_t units[kTileSide * kTileSide / 8];
};

// Maximum of two pairs of magnitudes.
[[nodiscard]] __device__ inline std::uint32_t pair_max(std::uint32_t a, std::uint32_t b) { return __vmaxu2(a, b); }

// 1 / scale for the numbers of a block, a power of two, in bf16 twice, and the bits of them that are kept: none if the
// scale is NaN, so that their bytes are 0.
struct E4m3Factor {
  std::uint32_t twice;
  std::uint32_t kept;
  // A factor for a scale by e4m3_scale_bits().
  __device__ explicit E4m3Factor(std::uint32_t scale)
      : twice((((254u << 23) - scale) >> 16) * 0x10001u), kept(scale >= 0x7F800000u ? 0 : 0xFFFFFFFFu) {}
};

// Two numbers of bf16, times the factor, as e4m3. A product that is subnormal in bf16 is 0 in e4m3; others are exact.
[[nodiscard]] __device__ inline std::uint32_t e4m3_pair(std::uint32_t pair, const E4m3Factor& factor) {
  const std::uint32_t product = scaled_exactly(pair, factor.twice) & factor.kept;
  const float2 values{__uint_as_float(product << 16), __uint_as_float(product & 0xFFFF0000u)};
  return __nv_cvt_float2_to_fp8x2(values, __NV_SATFINITE, __NV_E4M3);
}

// Eight numbers in e4m3.
[[nodiscard]] __device__ inline uint2 e4m3_eight(const std::uint32_t (&pairs)[4], const E4m3Factor& factor) {
  return {e4m3_pair(pairs[0], factor) | e4m3_pair(pairs[1], factor) << 16,
          e4m3_pair(pairs[2], factor) | e4m3_pair(pairs[3], factor) << 16};
}

// Quantizes the rows of the thread's part; words[i] has row i as four pairs of bf16, 0 past the rows in use.
__device__ inline void store_tile_rows(const std::uint32_t (&words)[8][4], const TilePart& part,
                                       const QuantizedViews& to) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    std::uint32_t most = pair_max(pair_max(words[i][0] & 0x7FFF7FFFu, words[i][1] & 0x7FFF7FFFu),
                                  pair_max(words[i][2] & 0x7FFF7FFFu, words[i][3] & 0x7FFF7FFFu));
    most = max(most & 0xFFFFu, most >> 16);
#pragma unroll
    for (int lane = 8; lane > 0; lane /= 2) most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, lane));
    const std::uint32_t scale = e4m3_scale_bits(most);
    const std::int64_t row = part.row + i;
    if (row >= to.capacity) continue;
    if (threadIdx.x % 16 == 0) to.row_scale[part.column / kTileSide * to.capacity + row] = __uint_as_float(scale);
    *reinterpret_cast<uint2*>(to.rows + row * to.k + part.column) = e4m3_eight(words[i], E4m3Factor(scale));
  }
}

// The largest magnitudes of the columns of the tile, of which a thread gets its eight, as pairs.
__device__ inline void column_maxima(const std::uint32_t (&words)[8][4], TileMemory& memory, std::uint32_t (&most)[4]) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    most[j] = words[0][j] & 0x7FFF7FFFu;
#pragma unroll
    for (int i = 1; i < 8; ++i) most[j] = pair_max(most[j], words[i][j] & 0x7FFF7FFFu);
    most[j] = pair_max(most[j], __shfl_xor_sync(0xFFFFFFFFu, most[j], 16));
  }
  const int column = static_cast<int>(threadIdx.x) % 16 * kTileColumns;
  if (threadIdx.x % 32 < 16) {
    *reinterpret_cast<uint4*>(&memory.maxima[threadIdx.x / 32][column]) = {most[0], most[1], most[2], most[3]};
  }
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kTileThreads / 32; ++warp) {
    const uint4 other = *reinterpret_cast<const uint4*>(&memory.maxima[warp][column]);
    most[0] = pair_max(most[0], other.x);
    most[1] = pair_max(most[1], other.y);
    most[2] = pair_max(most[2], other.z);
    most[3] = pair_max(most[3], other.w);
  }
}

// Largest magnitude of the tile; every thread gets it.
__device__ inline std::uint32_t block_magnitude(const std::uint32_t (&words)[8][4], TileMemory& memory) {
  std::uint32_t most = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) most = pair_max(most, words[i][j] & 0x7FFF7FFFu);
  }
  most = warp_max(max(most & 0xFFFFu, most >> 16));
  if (threadIdx.x % 32 == 0) memory.warp_maxima[threadIdx.x / 32] = most;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kTileThreads / 32; ++warp) most = max(most, memory.warp_maxima[warp]);
  return most;
}

// Writes the scale of a tile of a transposed matrix, and 1 to the scales that only fill up a row. `across` is the
// number of tiles of a row of the transposed matrix.
__device__ inline void store_block_scale(std::uint32_t scale, std::int64_t row, std::int64_t column,
                                         std::int64_t across, float* to, std::int64_t stride) {
  if (threadIdx.x == 0) to[row * stride + column] = __uint_as_float(scale);
  if (column == 0 && across + threadIdx.x < stride) to[row * stride + across + threadIdx.x] = 1.0f;
}

// Writes the transposed tile from shared memory, 16 bytes of a column by a thread.
__device__ inline void copy_columns(const TileMemory& memory, std::int64_t first_row, std::int64_t first_column,
                                    std::uint8_t* to, std::int64_t stride, std::int64_t most_rows) {
  __syncthreads();
  for (int piece = static_cast<int>(threadIdx.x); piece < kTileSide * 8; piece += kTileThreads) {
    const int column = piece / 8;
    const int pair = piece % 8;
    const std::int64_t row = first_row + pair * 16;
    if (row >= most_rows) continue;
    const int swizzle = column / 8;
    uint4 words = *reinterpret_cast<const uint4*>(&memory.units[column * 16 + 2 * (pair ^ swizzle / 2)]);
    if (swizzle % 2 != 0) words = {words.z, words.w, words.x, words.y};
    *reinterpret_cast<uint4*>(to + (first_column + column) * stride + row) = words;
  }
}

// Puts eight rows of eight columns into shared memory; factor(j) is that of column j.
template <class FactorOf>
__device__ inline void place_columns(const std::uint32_t (&words)[8][4], const FactorOf& factor, TileMemory& memory) {
  const int group = static_cast<int>(threadIdx.x) / 16;
  const int place = static_cast<int>(threadIdx.x) % 16;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    std::uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      pairs[i] = __byte_perm(words[2 * i][j / 2], words[2 * i + 1][j / 2], j % 2 == 0 ? 0x5410 : 0x7632);
    }
    const uint2 bytes = e4m3_eight(pairs, factor(j));
    memory.units[(place * kTileColumns + j) * 16 + (group ^ place)] =
        static_cast<std::uint64_t>(bytes.y) << 32 | bytes.x;
  }
}

// Quantizes the columns of the tile. All threads of the block call it.
__device__ inline void store_tile_columns(const std::uint32_t (&words)[8][4], const TilePart& part,
                                          const QuantizedViews& to, TileMemory& memory) {
  const std::int64_t first_row = part.row - threadIdx.x / 16 * kTileColumns;
  if (to.column_scale_stride > 0) {
    const std::uint32_t scale = e4m3_scale_bits(block_magnitude(words, memory));
    store_block_scale(scale, part.column / kTileSide, first_row / kTileSide, ceil_div(to.capacity, kTileSide),
                      to.column_scale, to.column_scale_stride);
    const E4m3Factor factor(scale);
    place_columns(words, [&](int) { return factor; }, memory);
  } else {
    std::uint32_t most[4];
    column_maxima(words, memory, most);
    std::uint32_t scales[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      scales[j] = e4m3_scale_bits(j % 2 == 0 ? most[j / 2] & 0xFFFFu : most[j / 2] >> 16);
      if (threadIdx.x < 16) {
        to.column_scale[first_row / kTileSide * to.k + part.column + j] = __uint_as_float(scales[j]);
      }
    }
    place_columns(words, [&](int j) { return E4m3Factor(scales[j]); }, memory);
  }
  copy_columns(memory, first_row, part.column - threadIdx.x % 16 * kTileColumns, to.columns, to.capacity, to.capacity);
}

// Quantizes a tile: words[i] has row i of the thread's part. All threads of the block call it.
__device__ inline void store_tile(const std::uint32_t (&words)[8][4], const TilePart& part, const QuantizedViews& to,
                                  TileMemory& memory) {
  store_tile_rows(words, part, to);
  if (to.columns != nullptr) store_tile_columns(words, part, to, memory);
}

}  // namespace hone
