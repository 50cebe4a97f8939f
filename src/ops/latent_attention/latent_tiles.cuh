// Sizes, barriers and work items of the kernels for attention to latent rows on Hopper.
#pragma once

#include <cstdint>

#include "backend/cuda/bulk_copy.cuh"
#include "backend/cuda/wgmma.cuh"
#include "ops/attention/tensor_forward_state.cuh"
#include "ops/attention/tiles.cuh"
#include "ops/attention/wgmma_forward_copy.cuh"

namespace hone {

inline constexpr int kLatentRank = 512;   // columns of values
inline constexpr int kLatentWidth = 576;  // columns of keys
inline constexpr int kLatentParts = kLatentWidth / 64;
inline constexpr int kLatentKeys = 64;        // keys in a tile; results depend on it
inline constexpr int kLatentSplitTiles = 16;  // tiles in a split; results depend on it
inline constexpr int kLatentSplitKeys = kLatentSplitTiles * kLatentKeys;

// A tile of keys in shared memory is eight boxes of eight rows, a box is kLatentParts parts of 64 columns, and a part
// is eight rows of 128 bytes, swizzled. A box is contiguous in the cache.
inline constexpr int kLatentBoxRows = 8;
inline constexpr int kLatentBoxes = kLatentKeys / kLatentBoxRows;
inline constexpr int kLatentPartBytes = kLatentBoxRows * 128;
inline constexpr int kLatentBoxBytes = kLatentParts * kLatentPartBytes;
inline constexpr int kLatentTileBytes = kLatentBoxes * kLatentBoxBytes;

// Offset of a 16-byte chunk of a tile's row, without the swizzle, which permutes the chunks of a part's row.
[[nodiscard]] __device__ inline std::uint32_t latent_chunk(int row, int part, int chunk) {
  return static_cast<std::uint32_t>(row / kLatentBoxRows * kLatentBoxBytes + part * kLatentPartBytes +
                                    row % kLatentBoxRows * 128 + chunk * 16);
}

// Zeros the columns of values of a tile's rows from `first` on with the threads of a warpgroup: their weights are 0,
// and 0 times what is there could be NaN.
__device__ inline void zero_latent_values(std::uint32_t stage, int first) {
  const int chunks = (kLatentKeys - first) * 8;  // of each 64 columns
  for (int i = static_cast<int>(threadIdx.x) % 128; i < chunks * (kLatentRank / 64); i += 128) {
    store_zeros16(stage + latent_chunk(first + i % chunks / 8, i / chunks, i % 8));
  }
}

// The matrix descriptor of a tile of keys, or of a part of it: columns are k of Major::kK, and m or n of Major::kMn.
// The next 64 columns are kLatentPartBytes on, and the next 16 rows two boxes.
[[nodiscard]] __device__ inline std::uint64_t latent_operand(std::uint32_t address) {
  return warpgroup_operand(address, kLatentPartBytes, kLatentBoxBytes);
}

// Addresses of the mbarriers in shared memory. Of each pair, `ready` is awaited by those who read and `free` by those
// who write.
struct LatentBarriers {
  static constexpr int kBytes = 144;
  std::uint32_t base;
  [[nodiscard]] __device__ std::uint32_t at(int i) const { return base + static_cast<std::uint32_t>(i) * 8; }
  [[nodiscard]] __device__ std::uint32_t item_ready(int slot) const { return at(slot); }
  [[nodiscard]] __device__ std::uint32_t item_free(int slot) const { return at(2 + slot); }
  [[nodiscard]] __device__ std::uint32_t q_ready(int place) const { return at(4 + place); }
  [[nodiscard]] __device__ std::uint32_t q_free(int place) const { return at(6 + place); }
  [[nodiscard]] __device__ std::uint32_t ready(int stage) const { return at(8 + stage); }
  [[nodiscard]] __device__ std::uint32_t free(int stage) const { return at(10 + stage); }
  // The narrow kernel has barriers for the weights of a tile, and for the totals of a split, too.
  [[nodiscard]] __device__ std::uint32_t weights_ready(int place) const { return at(12 + place); }
  [[nodiscard]] __device__ std::uint32_t weights_free(int place) const { return at(14 + place); }
  [[nodiscard]] __device__ std::uint32_t totals_ready() const { return at(16); }
  [[nodiscard]] __device__ std::uint32_t totals_free() const { return at(17); }

  // One thread initializes them for a block with eight computing warps, of which `readers` use a stage; a
  // __syncthreads() must follow.
  __device__ void init(int readers) const {
    for (int i = 0; i < 2; ++i) {
      barrier_init(item_ready(i), 1);
      barrier_init(item_free(i), 8);
      barrier_init(q_ready(i), 1);
      barrier_init(q_free(i), 4);
      barrier_init(ready(i), 1);
      barrier_init(free(i), readers);
      barrier_init(weights_ready(i), 4);
      barrier_init(weights_free(i), 4);
    }
    barrier_init(totals_ready(), 4);
    barrier_init(totals_free(), 4);
    barrier_init_done();
  }
};

// Consecutive tokens of one sequence with some of their heads, and the tiles of keys to compute for them.
struct LatentItem {
  std::int32_t row;       // row of the first token
  std::int32_t tokens;    // number of tokens
  std::int32_t position;  // of the first token in its sequence
  std::int32_t keys;      // that the last token sees; 0 for rows outside all sequences, -1: there are no more items
  std::int32_t head;      // the first one
  std::int32_t sequence;
  std::int32_t first, tiles;  // tiles [first, first + tiles)
};
static_assert(sizeof(LatentItem) == 32);

// Operands of the kernels. A sequence's rows are divided into items of item_tokens tokens and item_heads heads, and
// with splits.per_row > 1 an item's keys into splits, each of which is an item.
struct LatentQueries {
  Sequences sequences;
  PagedKeys<__nv_bfloat16> keys;  // k: [rows, kLatentWidth]
  __nv_bfloat16* o;               // [capacity, heads, kLatentRank]
  ForwardSplits splits;
  float4* kept;  // what a block that takes all splits of an item keeps of those before, kKept a warpgroup
  float scale;
  std::int32_t heads, item_heads, item_tokens;

  static constexpr std::int64_t kKept = 32 * 128 + 32;  // float4s of a warpgroup
  [[nodiscard]] __device__ int head_items() const { return (heads + item_heads - 1) / item_heads; }
};

struct LatentMaps {
  CUtensorMap q, k;  // boxes of item_tokens x item_heads rows by 64 columns, and of kLatentBoxRows whole rows
};

}  // namespace hone
