// Tiles of wgmma_latent.cuh: sizes in shared memory, work items, and the warp that finds items and copies for them.
#pragma once

#include <cstdint>

#include "backend/cuda/bulk_copy.cuh"
#include "ops/attention/tensor_forward_state.cuh"
#include "ops/attention/tiles.cuh"
#include "ops/attention/wgmma_forward_copy.cuh"

namespace hone {

inline constexpr int kLatentRank = 512;       // columns of values
inline constexpr int kLatentWidth = 576;      // columns of keys
inline constexpr int kLatentKeys = 64;        // keys in a tile; results depend on it
inline constexpr int kLatentSplitTiles = 16;  // tiles in a split; results depend on it
inline constexpr int kLatentSplitKeys = kLatentSplitTiles * kLatentKeys;
inline constexpr int kLatentRows = 64;  // query rows of an item: tokens x heads

// Offsets in shared memory, in bytes. Queries and keys are tiles of 64 columns: 64 rows of 128 bytes, swizzled.
struct LatentShared {
  static constexpr int kTile = 64 * 128;
  static constexpr int kParts = kLatentWidth / 64;
  static constexpr int kStages = 2;  // of a tile of keys each
  static constexpr int kStageBytes = kParts * kTile;
  static constexpr int kQuery = 0;
  static constexpr int kStage = kQuery + kParts * kTile;
  static constexpr int kWeights = kStage + kStages * kStageBytes;  // bf16 P [64, 64]
  static constexpr int kDecays = kWeights + kTile;                 // f32 [64]
  static constexpr int kGreatest = kDecays + kLatentRows * 4;      // f32 [64]
  static constexpr int kSums = kGreatest + kLatentRows * 4;        // f32 [64]
  static constexpr int kBarriers = kSums + kLatentRows * 4;
  static constexpr int kItems = kBarriers + 128;  // two slots of 32 bytes
  static constexpr int kBytes = kItems + 64;
  static constexpr int kConsumers = 256;  // threads that compute: two warpgroups
  static constexpr int kThreads = kConsumers + 128;
  static constexpr int kRegisters = 224;  // of a thread that computes
  static constexpr int kCopyRegisters = 56;
};
static_assert(LatentShared::kBytes <= 232448);
// The block has the registers that it is launched with, 168 for each thread: setmaxnreg waits forever for more.
static_assert(2 * LatentShared::kRegisters + LatentShared::kCopyRegisters <= 3 * 168);

// Consecutive tokens of one sequence with up to 64 of their heads, and the tiles of keys to compute for them.
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

// Addresses of the mbarriers in shared memory.
struct LatentBarriers {
  std::uint32_t base;
  [[nodiscard]] __device__ std::uint32_t q_ready() const { return base; }
  [[nodiscard]] __device__ std::uint32_t q_free() const { return base + 8; }
  [[nodiscard]] __device__ std::uint32_t item_ready(int slot) const { return base + 16 + slot * 8; }
  [[nodiscard]] __device__ std::uint32_t item_free(int slot) const { return base + 32 + slot * 8; }
  [[nodiscard]] __device__ std::uint32_t ready(int stage) const { return base + 48 + stage * 8; }
  [[nodiscard]] __device__ std::uint32_t free(int stage) const { return base + 64 + stage * 8; }
};

// Operands of the kernel. A sequence's rows are divided into items of item_tokens tokens and item_heads heads, and with
// splits.per_row > 1 an item's keys into splits, each of which is an item.
struct LatentQueries {
  Sequences sequences;
  PagedKeys<__nv_bfloat16> keys;  // k: [rows, kLatentWidth]
  __nv_bfloat16* o;               // [capacity, heads, kLatentRank]
  ForwardSplits splits;
  float4* kept;  // what a block that takes all splits of an item keeps of those before, kKept a warpgroup
  float scale;
  std::int32_t heads, item_heads, item_tokens;
  std::int32_t box_rows;  // rows of a page, or a part of it, that are copied together

  static constexpr std::int64_t kKept = 32 * 128 + 32;  // float4s of a warpgroup
  [[nodiscard]] __device__ int head_items() const { return (heads + item_heads - 1) / item_heads; }
};

struct LatentMaps {
  CUtensorMap q, k;
};

// The warp that copies. Its block takes every gridDim.x-th item, in the order of sequences, tokens, splits and heads,
// so that blocks which read the same keys do so concurrently.
struct LatentCopy {
  const LatentQueries& queries;
  const LatentMaps& maps;
  std::uint32_t shared;
  LatentBarriers barriers;
  LatentItem* slots;
  ForwardRing<2> filled;
  ForwardRing<LatentShared::kStages> stages;
  int q_parity = 0;

  [[nodiscard]] __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }

  __device__ void pass(const LatentItem& item) {
    barrier_wait(barriers.item_free(filled.place), filled.parity ^ 1);
    if (lane() == 0) {
      slots[filled.place] = item;
      barrier_arrive(barriers.item_ready(filled.place));
    }
    __syncwarp();
    filled.next();
  }
  __device__ void copy_queries(const LatentItem& item) {
    barrier_wait(barriers.q_free(), q_parity ^ 1);
    q_parity ^= 1;
    if (lane() == 0) {
      barrier_expect(barriers.q_ready(), queries.item_tokens * queries.item_heads * 128 * LatentShared::kParts);
    }
    __syncwarp();
    if (lane() < LatentShared::kParts) {
      bulk_copy_box(shared + static_cast<std::uint32_t>(LatentShared::kQuery + lane() * LatentShared::kTile), maps.q,
                    lane() * 64, item.head, item.row, barriers.q_ready());
    }
  }
  // The row in the cache of the lane's box among the 32 that begin with box `first` of the sequence; -1: none.
  [[nodiscard]] __device__ int load_row(const LatentItem& item, int first) const {
    const int key = (first + lane()) * queries.box_rows;
    if (key >= item.keys) return -1;
    const int size = queries.keys.block_size;
    return queries.keys.page(item.sequence, key) * size + key % size;
  }
  // Copies the boxes of a tile to the next stage; lane i has the row of box i % boxes. Rows after item.keys are those
  // of their page, or what was there before.
  __device__ void copy_tile(const LatentItem& item, int tile, int row, int boxes) {
    const std::uint32_t to =
        shared + static_cast<std::uint32_t>(LatentShared::kStage + stages.place * LatentShared::kStageBytes);
    const std::uint32_t ready = barriers.ready(stages.place);
    const int keys = min(kLatentKeys, item.keys - tile * kLatentKeys);
    const int count = (keys + queries.box_rows - 1) / queries.box_rows;
    barrier_wait(barriers.free(stages.place), stages.parity ^ 1);
    stages.next();
    if (lane() == 0) barrier_expect(ready, count * queries.box_rows * kLatentWidth * 2);
    __syncwarp();
    if (row < 0) return;
    const int within = lane() % boxes * queries.box_rows * 128;
    for (int part = lane() / boxes; part < LatentShared::kParts; part += 32 / boxes) {
      bulk_copy_box(to + static_cast<std::uint32_t>(part * LatentShared::kTile + within), maps.k, part * 64, 0, row,
                    ready);
    }
  }
  // Copies an item's queries and keys. The first tile goes ahead of the queries, which overwrite those of the item
  // before. 32 rows are looked up in one load, and the next 32 while they are used.
  __device__ void copy_item(const LatentItem& item) {
    const int boxes = kLatentKeys / queries.box_rows;
    const int first_box = item.first * boxes;
    int held = load_row(item, first_box);
    int next = load_row(item, first_box + 32);
    for (int i = 0; i < item.tiles; ++i) {
      const int place = i * boxes;
      if (i > 0 && place % 32 == 0) {
        held = next;
        next = load_row(item, first_box + place + 32);
      }
      copy_tile(item, item.first + i, __shfl_sync(0xFFFFFFFFu, held, place % 32 + lane() % boxes), boxes);
      if (i == 0) copy_queries(item);
    }
  }
  // The item of a sequence's unit: `token` is the sequence's first row, of `rows`, at position `start`.
  __device__ void unit(int index, int sequence, int token, int rows, int start, int splits, bool outside) {
    const int heads = queries.head_items();
    const int split = index / heads % splits;
    const int first_token = index / heads / splits * queries.item_tokens;
    LatentItem item{};
    item.row = token + first_token;
    item.tokens = min(queries.item_tokens, rows - first_token);
    item.position = start + first_token;
    item.keys = outside ? 0 : item.position + item.tokens;
    item.head = index % heads * queries.item_heads;
    item.sequence = sequence;
    const int tiles = (item.keys + kLatentKeys - 1) / kLatentKeys;
    item.first = split * kLatentSplitTiles;
    item.tiles = splits == 1 ? tiles : min(kLatentSplitTiles, tiles - item.first);
    if (!outside && item.tiles <= 0) return;
    pass(item);
    if (!outside) copy_item(item);
  }
  __device__ void run() {
    const Sequences& all = queries.sequences;
    const auto count = static_cast<int>(all.count.get());
    int before = 0;  // units of the sequences before
    auto next = static_cast<int>(blockIdx.x);
    for (int first = 0; first <= count; first += 32) {
      const int sequence = first + lane();
      const bool outside = sequence == count;
      int token = 0, rows = 0, start = 0, splits = 1;
      if (sequence <= count) {
        token = all.cu_seqlens[sequence];
        rows = (outside ? static_cast<int>(all.capacity) : all.cu_seqlens[sequence + 1]) - token;
        if (!outside && rows > 0) {
          start = queries.keys.starts[sequence];
          if (queries.splits.per_row > 1) splits = (start + rows + kLatentSplitKeys - 1) / kLatentSplitKeys;
        }
      }
      const int units = (rows + queries.item_tokens - 1) / queries.item_tokens * splits * queries.head_items();
      const int end = warp_sum_up_to(units);
      const int total = __shfl_sync(0xFFFFFFFFu, end, 31);
      for (; next < before + total; next += static_cast<int>(gridDim.x)) {
        const int owner = __ffs(__ballot_sync(0xFFFFFFFFu, before + end > next)) - 1;
        const auto of_owner = [&](int value) { return __shfl_sync(0xFFFFFFFFu, value, owner); };
        const int begin = of_owner(before + end - units);
        unit(next - begin, first + owner, of_owner(token), of_owner(rows), of_owner(start), of_owner(splits),
             first + owner == count);
      }
      before += total;
    }
    LatentItem none{};
    none.keys = -1;
    pass(none);
  }
};

}  // namespace hone
