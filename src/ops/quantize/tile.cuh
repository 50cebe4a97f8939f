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
// These kernels are limited by instructions before memory, so each is counted (docs/lab-notes.md, Products in FP8):
// maxima are of magnitudes as integers, two in a word; one thread computes the scale of a row or column, and all others
// read its factor in bf16 from shared memory, 8 in one load; values are scaled as pairs.
//
// Rows are stored from registers, 128 bytes by half a warp. Columns are transposed through shared memory, whose units
// of 8 bytes (8 rows of one column) are swizzled, so that neither the stores nor the loads of a warp meet in a bank:
//
//   unit u of column c is at c * 16 + (u ^ s), where the four bits of s are those of c / 8, the highest one last
//
// Maxima do not depend on an order, so neither do the results.
#pragma once

#include "core/float8.h"
#include "ops/cuda_kernel.cuh"
#include "ops/fp8_linear/fp8_bits.cuh"
#include "ops/quantize/quantize.h"
#include "ops/quantize/views.h"

namespace hone {

inline constexpr int kTileThreads = 256;
inline constexpr int kTileSide = 128;
inline constexpr int kTileColumns = 8;  // of a thread, and rows

// The columns that a kernel writes besides the rows.
enum class TileColumns {
  kNone,
  kNoneRagged,  // and the rows may end within those of a thread (QuantizeAttributes::any_rows)
  kBlocks,      // with one scale for the tile
  kVectors,     // with one scale each
};

// Calls body.operator()<columns>() with what is wanted of `to`.
template <class Body>
void with_columns(const QuantizedViews& to, const Body& body) {
  if (to.columns == nullptr && to.capacity % kTileColumns != 0) {
    body.template operator()<TileColumns::kNoneRagged>();
  } else if (to.columns == nullptr) {
    body.template operator()<TileColumns::kNone>();
  } else if (to.column_scale_stride > 0) {
    body.template operator()<TileColumns::kBlocks>();
  } else {
    body.template operator()<TileColumns::kVectors>();
  }
}

// The grid of blocks of kTileThreads for a matrix: tiles of a row of tiles first.
[[nodiscard]] inline unsigned tile_count(const QuantizedViews& to) {
  return static_cast<unsigned>(ceil_div(to.capacity, kTileSide) * (to.k / kTileSide));
}

// Position of the calling thread's part of its block's tile.
struct TilePart {
  std::int64_t row;     // first of 8
  std::int64_t column;  // first of 8
  // In the tile of a row and column of tiles.
  __device__ TilePart(std::uint32_t tile_row, std::uint32_t tile_column)
      : row(static_cast<std::int64_t>(tile_row) * kTileSide + threadIdx.x / 16 * kTileColumns),
        column(static_cast<std::int64_t>(tile_column) * kTileSide + threadIdx.x % 16 * kTileColumns) {}
  // In the block's tile of a matrix of k columns.
  __device__ explicit TilePart(std::int64_t k)
      : TilePart(blockIdx.x / static_cast<std::uint32_t>(k / kTileSide),
                 blockIdx.x % static_cast<std::uint32_t>(k / kTileSide)) {}
  // Returns how many of the 8 rows are before row `end`.
  [[nodiscard]] __device__ int rows_before(std::int64_t end) const {
    return static_cast<int>(max(min(end - row, std::int64_t{kTileColumns}), std::int64_t{0}));
  }
  // First row and column of the tile.
  [[nodiscard]] __device__ std::int64_t tile_row() const { return row - threadIdx.x / 16 * kTileColumns; }
  [[nodiscard]] __device__ std::int64_t tile_column() const { return column - threadIdx.x % 16 * kTileColumns; }
};

struct TileMemory {
  alignas(16) std::uint16_t row_factors[kTileSide];
  alignas(16) std::uint32_t column_factors[kTileSide / 2];             // pairs
  alignas(16) std::uint32_t maxima[kTileThreads / 32][kTileSide / 2];  // of columns, pairs, by warp
  alignas(16) std::uint32_t warp_maxima[kTileThreads / 32];
  alignas(16) std::uint64_t units[kTileSide * kTileSide / 8];
};

// Maximum of two pairs of magnitudes.
[[nodiscard]] __device__ inline std::uint32_t pair_max(std::uint32_t a, std::uint32_t b) { return __vmaxu2(a, b); }

[[nodiscard]] __device__ inline std::uint32_t magnitudes(std::uint32_t pair) { return pair & 0x7FFF7FFFu; }

// 1 / scale in bf16, a power of two; 0 if the scale is NaN. `scale` is one of e4m3_scale_bits().
[[nodiscard]] __device__ inline std::uint32_t e4m3_factor(std::uint32_t scale) {
  return scale >= 0x7F800000u ? 0u : ((254u << 23) - scale) >> 16;
}

// True if one of the factors, in bf16, is 0: its numbers are not finite, and their bytes are to be 0.
[[nodiscard]] __device__ inline bool has_zero(const uint4& factors) {
  const std::uint32_t least = __vminu2(__vminu2(factors.x, factors.y), __vminu2(factors.z, factors.w));
  return (least & 0xFFFFu) == 0 || least >> 16 == 0;
}

[[nodiscard]] __device__ inline float low_half(std::uint32_t pair) { return __uint_as_float(pair << 16); }
[[nodiscard]] __device__ inline float high_half(std::uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000u); }

// Eight numbers of bf16, times the factor that `twice` has twice, as e4m3. A product that is subnormal in bf16 is 0 in
// e4m3; others are exact.
[[nodiscard]] __device__ inline uint2 e4m3_eight(const std::uint32_t (&pairs)[4], std::uint32_t twice) {
  std::uint32_t products[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) products[j] = scaled_exactly(pairs[j], twice);
  return {e4m3_four(low_half(products[0]), high_half(products[0]), low_half(products[1]), high_half(products[1])),
          e4m3_four(low_half(products[2]), high_half(products[2]), low_half(products[3]), high_half(products[3]))};
}

// The largest magnitudes of two rows of a thread, the first in the low half.
[[nodiscard]] __device__ inline std::uint32_t two_rows(const std::uint32_t (&a)[4], const std::uint32_t (&b)[4]) {
  const auto most = [](const std::uint32_t(&row)[4]) {
    return pair_max(pair_max(magnitudes(row[0]), magnitudes(row[1])), pair_max(magnitudes(row[2]), magnitudes(row[3])));
  };
  const std::uint32_t of_a = most(a);
  const std::uint32_t of_b = most(b);
  return pair_max(__byte_perm(of_a, of_b, 0x5410), __byte_perm(of_a, of_b, 0x7632));
}

// Number of the pair of the thread's eight rows whose maxima row_maxima() returns.
[[nodiscard]] __device__ inline int tile_row_pair() { return static_cast<int>(threadIdx.x) / 4 % 4; }
// The largest magnitudes over 16 lanes of these two rows, the first in the low half. In each of two steps a lane sends
// half of what it has and keeps the other half; two more steps join the lanes that have kept the same rows.
[[nodiscard]] __device__ inline std::uint32_t row_maxima(const std::uint32_t (&words)[8][4]) {
  constexpr std::uint32_t kAll = 0xFFFFFFFFu;
  const std::uint32_t pairs[4] = {two_rows(words[0], words[1]), two_rows(words[2], words[3]),
                                  two_rows(words[4], words[5]), two_rows(words[6], words[7])};
  const bool eight = (threadIdx.x & 8) != 0;
  const bool four = (threadIdx.x & 4) != 0;
  const std::uint32_t a = pair_max(eight ? pairs[2] : pairs[0], __shfl_xor_sync(kAll, eight ? pairs[0] : pairs[2], 8));
  const std::uint32_t b = pair_max(eight ? pairs[3] : pairs[1], __shfl_xor_sync(kAll, eight ? pairs[1] : pairs[3], 8));
  std::uint32_t most = pair_max(four ? b : a, __shfl_xor_sync(kAll, four ? a : b, 4));
  most = pair_max(most, __shfl_xor_sync(kAll, most, 2));
  return pair_max(most, __shfl_xor_sync(kAll, most, 1));
}

// Quantizes the rows of the thread's part; words[i] has row i as four pairs of bf16, 0 past the rows in use. `most` is
// that of row_maxima(). The rows of a part are all within the capacity, or none is; kRagged: the first `used` are
// stored.
template <bool kRagged = false>
__device__ inline void store_tile_rows(const std::uint32_t (&words)[8][4], std::uint32_t most, const TilePart& part,
                                       const QuantizedViews& to, TileMemory& memory, int used = kTileColumns) {
  static_assert(kQuantizedRows % kTileColumns == 0);
  const bool stored = kRagged ? used > 0 : part.row < to.capacity;
  const int first = static_cast<int>(threadIdx.x) / 16 * kTileColumns;
  const int mine = 2 * tile_row_pair() + static_cast<int>(threadIdx.x) % 2;
  const std::uint32_t scale = e4m3_scale_bits(threadIdx.x % 2 == 0 ? most & 0xFFFFu : most >> 16);
  __syncwarp();  // all lanes have read the factors of an earlier tile
  if (threadIdx.x % 4 < 2) {
    memory.row_factors[first + mine] = static_cast<std::uint16_t>(e4m3_factor(scale));
    if (kRagged ? mine < used : stored) {
      to.row_scale[part.column / kTileSide * to.capacity + part.row + mine] = __uint_as_float(scale);
    }
  }
  __syncwarp();
  const uint4 factors = *reinterpret_cast<const uint4*>(&memory.row_factors[first]);
  if (!stored) return;
  const std::uint32_t pairs[4] = {factors.x, factors.y, factors.z, factors.w};
  std::uint8_t* const rows = to.rows + part.row * to.k + part.column;
  const auto stride = static_cast<std::uint32_t>(to.k);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (kRagged && i >= used) break;
    const std::uint32_t twice = __byte_perm(pairs[i / 2], 0, i % 2 == 0 ? 0x1010 : 0x3232);
    *reinterpret_cast<uint2*>(rows + static_cast<std::uint32_t>(i) * stride) = e4m3_eight(words[i], twice);
  }
  if (!has_zero(factors)) return;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if ((!kRagged || i < used) && (pairs[i / 2] >> (i % 2 * 16) & 0xFFFFu) == 0)
      *reinterpret_cast<uint2*>(rows + static_cast<std::uint32_t>(i) * stride) = {};
  }
}

// Puts the largest magnitudes of the columns over the rows of each warp into shared memory.
__device__ inline void place_column_maxima(const std::uint32_t (&words)[8][4], TileMemory& memory) {
  std::uint32_t most[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    most[j] = magnitudes(words[0][j]);
#pragma unroll
    for (int i = 1; i < 8; ++i) most[j] = pair_max(most[j], magnitudes(words[i][j]));
    most[j] = pair_max(most[j], __shfl_xor_sync(0xFFFFFFFFu, most[j], 16));
  }
  if (threadIdx.x % 32 < 16) {
    *reinterpret_cast<uint4*>(&memory.maxima[threadIdx.x / 32][threadIdx.x % 16 * 4]) = {most[0], most[1], most[2],
                                                                                         most[3]};
  }
}

// Computes the scales of the columns, two by a thread of the first two warps. After place_column_maxima() and a
// barrier.
__device__ inline void store_column_scales(const TilePart& part, const QuantizedViews& to, TileMemory& memory) {
  if (threadIdx.x >= kTileSide / 2) return;
  std::uint32_t most = memory.maxima[0][threadIdx.x];
#pragma unroll
  for (int warp = 1; warp < kTileThreads / 32; ++warp) most = pair_max(most, memory.maxima[warp][threadIdx.x]);
  const std::uint32_t low = e4m3_scale_bits(most & 0xFFFFu);
  const std::uint32_t high = e4m3_scale_bits(most >> 16);
  memory.column_factors[threadIdx.x] = e4m3_factor(low) | e4m3_factor(high) << 16;
  float* const scales = to.column_scale + part.tile_row() / kTileSide * to.k + part.tile_column();
  reinterpret_cast<float2*>(scales)[threadIdx.x] = {__uint_as_float(low), __uint_as_float(high)};
}

// Largest magnitude of the tile of what each thread has; every thread gets it.
__device__ inline std::uint32_t block_maximum(std::uint32_t most, TileMemory& memory) {
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

// Puts eight rows of eight columns into shared memory; the factors of the columns are pairs.
__device__ inline void place_columns(const std::uint32_t (&words)[8][4], const uint4& factors, TileMemory& memory) {
  const int group = static_cast<int>(threadIdx.x) / 16;
  const int place = static_cast<int>(threadIdx.x) % 16;
  std::uint64_t* const units = memory.units + place * kTileColumns * 16 + (group ^ (place % 8 * 2 + place / 8));
  const std::uint32_t pairs[4] = {factors.x, factors.y, factors.z, factors.w};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    std::uint32_t p[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) p[i] = scaled_exactly(words[i][j], pairs[j]);
    *reinterpret_cast<uint2*>(units + 2 * j * 16) = {
        e4m3_four(low_half(p[0]), low_half(p[1]), low_half(p[2]), low_half(p[3])),
        e4m3_four(low_half(p[4]), low_half(p[5]), low_half(p[6]), low_half(p[7]))};
    *reinterpret_cast<uint2*>(units + (2 * j + 1) * 16) = {
        e4m3_four(high_half(p[0]), high_half(p[1]), high_half(p[2]), high_half(p[3])),
        e4m3_four(high_half(p[4]), high_half(p[5]), high_half(p[6]), high_half(p[7]))};
  }
  if (!has_zero(factors)) return;
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    if ((pairs[j / 2] >> (j % 2 * 16) & 0xFFFFu) == 0) units[j * 16] = 0;
  }
}

// Writes the transposed tile from shared memory, 16 bytes of a column by a thread.
__device__ inline void copy_columns(const TileMemory& memory, std::int64_t first_row, std::int64_t first_column,
                                    std::uint8_t* to, std::int64_t stride, std::int64_t most_rows) {
  __syncthreads();
  const int pair = static_cast<int>(threadIdx.x) % 8;
  const std::int64_t row = first_row + pair * 16;
  if (row >= most_rows) return;
  const int first = static_cast<int>(threadIdx.x) / 8;
  std::uint8_t* const bytes = to + (first_column + first) * stride + row;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int column = first + 32 * i;
    uint4 words = *reinterpret_cast<const uint4*>(&memory.units[column * 16 + 2 * (pair ^ column / 8 % 8)]);
    if (i >= 2) words = {words.z, words.w, words.x, words.y};
    *reinterpret_cast<uint4*>(bytes + i * 32 * stride) = words;
  }
}

// Quantizes the columns of a tile, after place_column_maxima() if they have a scale each. `most` is that of
// row_maxima().
template <TileColumns kColumns>
__device__ inline void store_tile_columns(const std::uint32_t (&words)[8][4], std::uint32_t most, const TilePart& part,
                                          const QuantizedViews& to, TileMemory& memory) {
  const std::int64_t row = part.tile_row();
  uint4 factors;
  if constexpr (kColumns == TileColumns::kBlocks) {
    const std::uint32_t scale = e4m3_scale_bits(block_maximum(most, memory));
    store_block_scale(scale, part.column / kTileSide, row / kTileSide, ceil_div(to.capacity, kTileSide),
                      to.column_scale, to.column_scale_stride);
    const std::uint32_t twice = e4m3_factor(scale) * 0x10001u;
    factors = {twice, twice, twice, twice};
  } else {
    __syncthreads();
    store_column_scales(part, to, memory);
    __syncthreads();
    factors = *reinterpret_cast<const uint4*>(&memory.column_factors[threadIdx.x % 16 * 4]);
  }
  place_columns(words, factors, memory);
  copy_columns(memory, row, part.tile_column(), to.columns, to.capacity, to.capacity);
}

// Quantizes a tile: words[i] has row i of the thread's part. All threads of the block call it.
template <TileColumns kColumns>
__device__ inline void store_tile(const std::uint32_t (&words)[8][4], const TilePart& part, const QuantizedViews& to,
                                  TileMemory& memory) {
  const std::uint32_t most = row_maxima(words);
  if constexpr (kColumns == TileColumns::kVectors) place_column_maxima(words, memory);
  if constexpr (kColumns == TileColumns::kNoneRagged) {
    store_tile_rows<true>(words, most, part, to, memory, part.rows_before(to.capacity));
    return;
  }
  store_tile_rows(words, most, part, to, memory);
  if constexpr (kColumns == TileColumns::kBlocks || kColumns == TileColumns::kVectors)
    store_tile_columns<kColumns>(words, most, part, to, memory);
}

}  // namespace hone
