// FP8 pages that many query rows read, widened once for all of them (wgmma_forward.cuh): the keys and values of a
// sequence as rows of bf16 that follow each other, in the workspace.
//
// A sequence whose query rows need more than one item of a key head is widened if there is room, in the order of the
// sequences; the others are widened by each item that reads them. The bits are the same. There is room for the longest
// sequence and for the new rows, so that a long prompt that continues and others that begin fit together, and for
// 32,768 keys at least.
//
//   schedule (1)                 which sequences, and their first rows          WidenedPages::assign()
//   widen_pages (2)              tiles of 128 keys, in any order
//   wgmma_attention_forward (3)  copies boxes of 128 rows, as of packed keys
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/gpu/kernel.cuh"
#include "ops/attention/tiles.cuh"

namespace hone {

inline constexpr int kWidenedKeys = 128;  // rows of a tile

struct WidenedTile {
  std::int32_t sequence, tile;
};

struct WidenedPages {
  std::byte* k = nullptr;  // bf16 [capacity x kWidenedKeys, kv_heads x head_dim]
  std::byte* v = nullptr;
  WidenedTile* tiles = nullptr;        // [capacity]
  std::int32_t* first_rows = nullptr;  // [sequences]: the row of a sequence's first key, or -1
  std::int32_t* count = nullptr;       // tiles in use
  std::int32_t capacity = 0;           // in tiles; 0: nothing is widened

  static constexpr std::int64_t kLeastTiles = 256;  // room for prompts that continue shared prefixes

  // The tiles that there is room for.
  [[nodiscard]] static std::int64_t capacity_of(std::int64_t rows, std::int64_t sequences, std::int64_t most_keys) {
    const auto tiles = [](std::int64_t keys) { return (keys + kWidenedKeys - 1) / kWidenedKeys; };
    return std::min(sequences * tiles(most_keys), std::max(tiles(most_keys) + 2 * tiles(rows), kLeastTiles));
  }
  // Bytes of a workspace; `row` is kv_heads x head_dim.
  [[nodiscard]] static std::size_t bytes(std::int64_t capacity, std::int64_t sequences, std::int64_t row) {
    return static_cast<std::size_t>(2 * matrix_bytes(capacity, row) + lists_bytes(capacity, sequences));
  }
  [[nodiscard]] static WidenedPages in(std::byte* workspace, std::int64_t capacity, std::int64_t row) {
    WidenedPages pages;
    pages.k = workspace;
    pages.v = pages.k + matrix_bytes(capacity, row);
    pages.tiles = reinterpret_cast<WidenedTile*>(pages.v + matrix_bytes(capacity, row));
    pages.count = reinterpret_cast<std::int32_t*>(pages.tiles + capacity);
    pages.first_rows = pages.count + 1;
    pages.capacity = static_cast<std::int32_t>(capacity);
    return pages;
  }
  [[nodiscard]] __host__ __device__ std::int64_t rows() const { return std::int64_t{capacity} * kWidenedKeys; }

  // Chooses the sequences. keys_of(s) is the number of keys of sequence s, or 0 if it is not to be widened. All threads
  // of a block of kThreads call it; `sums` are 32 numbers in shared memory.
  template <int kThreads, class KeysOf>
  __device__ void assign(std::int32_t sequences, std::int32_t* sums, const KeysOf& keys_of) const {
    const int thread = static_cast<int>(threadIdx.x);
    std::int32_t before = 0;  // tiles of the sequences before this round
    std::int32_t used = 0;
    for (std::int32_t first = 0; first < sequences; first += kThreads) {
      const std::int32_t s = first + thread;
      const std::int32_t own = s < sequences ? (keys_of(s) + kWidenedKeys - 1) / kWidenedKeys : 0;
      std::int32_t up_to = warp_sum_up_to(own);
      if (thread % 32 == 31) sums[thread / 32] = up_to;
      __syncthreads();
      std::int32_t all = 0;
      for (int w = 0; w < kThreads / 32; ++w) {
        if (w == thread / 32) up_to += all;
        all += sums[w];
      }
      __syncthreads();
      const std::int32_t at = before + up_to - own;
      const bool fits = own > 0 && at + own <= capacity;
      if (s < sequences) first_rows[s] = fits ? at * kWidenedKeys : -1;
      for (std::int32_t i = 0; fits && i < own; ++i) tiles[at + i] = {s, i};
      if (fits) used = at + own;
      before += all;
    }
    // Sequences that fit come before those that do not, so the last of them ends the tiles in use.
    if (thread == 0) *count = 0;
    __syncthreads();
    if (used > 0) atomicMax(count, used);
    __syncthreads();
  }

 private:
  [[nodiscard]] static std::int64_t matrix_bytes(std::int64_t capacity, std::int64_t row) {
    return (capacity * kWidenedKeys * row * 2 + 1023) / 1024 * 1024;
  }
  [[nodiscard]] static std::int64_t lists_bytes(std::int64_t capacity, std::int64_t sequences) {
    return capacity * static_cast<std::int64_t>(sizeof(WidenedTile)) + 4 * (1 + sequences);
  }
};

// FP8 pages of which some may be widened.
struct WidenablePages : Fp8PagedKeys {
  WidenedPages widened{};
};

}  // namespace hone
