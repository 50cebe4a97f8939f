// The warp of the kernels for attention to latent rows that finds items and copies for them.
#pragma once

#include "ops/latent_attention/latent_tiles.cuh"

namespace hone {

// The warp that copies. Its block takes every gridDim.x-th item, in the order of sequences, tokens, splits and heads,
// so that blocks which read the same keys do so concurrently.
template <class Plan>
struct LatentCopy {
  const LatentQueries& queries;
  const LatentMaps& maps;
  std::uint32_t shared;
  LatentBarriers barriers;
  LatentItem* slots;
  ForwardRing<2> filled;
  ForwardRing<Plan::kStages> stages;
  ForwardRing<Plan::kQueries> q;

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
    const std::uint32_t ready = barriers.q_ready(q.place);
    barrier_wait(barriers.q_free(q.place), q.parity ^ 1);
    if (lane() == 0) barrier_expect(ready, queries.item_tokens * queries.item_heads * 128 * kLatentParts);
    __syncwarp();
    if (lane() < kLatentParts) {
      const int to = Plan::kQuery + q.place * Plan::kQueryBytes + lane() * Plan::kQueryPart;
      bulk_copy_box(shared + static_cast<std::uint32_t>(to), maps.q, lane() * 64, item.head, item.row, ready);
    }
    q.next();
  }
  // The row in the cache of the lane's box among the 32 that begin with box `first` of the sequence; -1: none.
  [[nodiscard]] __device__ int load_row(const LatentItem& item, int first) const {
    const int key = (first + lane()) * kLatentBoxRows;
    if (key >= item.keys) return -1;
    const int size = queries.keys.block_size;
    return queries.keys.page(item.sequence, key) * size + key % size;
  }
  // Copies a tile to the next stage; lane i has the row of box i % kLatentBoxes. Rows after item.keys are those of
  // their page, or what was there before.
  __device__ void copy_tile(const LatentItem& item, int tile, int row) {
    const std::uint32_t ready = barriers.ready(stages.place);
    const int to = Plan::kStage + stages.place * kLatentTileBytes + lane() * kLatentBoxBytes;
    const int keys = min(kLatentKeys, item.keys - tile * kLatentKeys);
    barrier_wait(barriers.free(stages.place), stages.parity ^ 1);
    stages.next();
    if (lane() == 0) barrier_expect(ready, (keys + kLatentBoxRows - 1) / kLatentBoxRows * kLatentBoxBytes);
    __syncwarp();
    if (row >= 0 && lane() < kLatentBoxes) {
      bulk_copy_box_once(shared + static_cast<std::uint32_t>(to), maps.k, 0, row, 0, ready);
    }
  }
  // Copies an item's queries and keys. If there is room for the queries of one item only, the first tile goes ahead of
  // them, because they overwrite those of the item before. 32 rows are looked up in one load, and the next 32 while
  // they are used.
  __device__ void copy_item(const LatentItem& item) {
    const int first_box = item.first * kLatentBoxes;
    int held = load_row(item, first_box);
    int next = load_row(item, first_box + 32);
    if (Plan::kQueries > 1) copy_queries(item);
    for (int i = 0; i < item.tiles; ++i) {
      const int place = i * kLatentBoxes;
      if (i > 0 && place % 32 == 0) {
        held = next;
        next = load_row(item, first_box + place + 32);
      }
      copy_tile(item, item.first + i, __shfl_sync(0xFFFFFFFFu, held, place % 32 + lane() % kLatentBoxes));
      if (Plan::kQueries == 1 && i == 0) copy_queries(item);
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

// Takes the block's items with one of the computing warpgroups: begin(item), then split(item, first tile, tiles,
// whether they are the item's last) for each of its splits.
template <class Plan, class Group, class Begin, class Split>
__device__ void for_latent_splits(const Group& group, const Begin& begin, const Split& split) {
  ForwardRing<2> taken;
  for (;;) {
    const auto item = next_item<LatentItem>(group.bytes + Plan::kItems, taken, group.barriers);
    if (item.keys < 0) return;
    begin(item);
    const int end = item.first + item.tiles;
    for (int first = item.first; first < end; first += kLatentSplitTiles) {
      split(item, first, min(kLatentSplitTiles, end - first), first + kLatentSplitTiles >= end);
    }
  }
}

}  // namespace hone
