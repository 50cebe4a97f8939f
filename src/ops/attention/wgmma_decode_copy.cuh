// The warps of wgmma_decode.cuh that copy.
#pragma once

#include "ops/attention/wgmma_decode_plan.cuh"

namespace hone {

// The part of an item that begins with its token `first`.
[[nodiscard]] __device__ inline AttentionItem part_of(const AttentionItem& item, int first, int part_tokens) {
  AttentionItem part = item;
  part.row += first;
  part.position += first;
  part.tokens = min(part_tokens, item.tokens - first);
  part.work = part.position + part.tokens;
  return part;
}

// The tile of an index as sequence_tile() gives it, but without the empty ones in between if every sequence has one
// row. Blocks that take several items then get equally many.
[[nodiscard]] __device__ inline SequenceTile decode_tile(const Sequences& sequences, std::int64_t tile_rows,
                                                         std::int64_t index) {
  const auto count = static_cast<std::int32_t>(sequences.count.get());
  if (sequences.cu_seqlens[count] != count) return sequence_tile(sequences, 1, tile_rows, index);
  SequenceTile tile{};
  tile.outside = index >= count;
  tile.sequence = tile.outside ? count : static_cast<std::int32_t>(index);
  tile.token = tile.sequence;
  tile.rows = tile.outside ? static_cast<std::int32_t>(sequences.capacity) - count : 1;
  tile.first = static_cast<std::int32_t>((index - tile.sequence) * tile_rows);
  tile.end = min(tile.first + static_cast<std::int32_t>(tile_rows), tile.rows);
  return tile;
}

// The sequence of an index as one tile, which is empty if it has more than `most` tokens or there is none.
[[nodiscard]] __device__ inline SequenceTile short_tile(const Sequences& sequences, std::int32_t most,
                                                        std::int32_t index) {
  SequenceTile tile{};
  if (index >= sequences.count.get()) return tile;
  tile.sequence = index;
  tile.token = sequences.cu_seqlens[index];
  tile.rows = sequences.cu_seqlens[index + 1] - static_cast<std::int32_t>(tile.token);
  tile.end = tile.rows <= most ? tile.rows : 0;
  return tile;
}

// The side that copies: finds the block's items, passes them on, and copies their queries, keys and values.
template <class Plan, class Keys>
struct DecodeCopy {
  ForwardCopy<Plan, Keys> copy;
  AttentionItem* slots;
  ForwardSplits splits;
  bool early;           // as in the kernel
  bool waited = false;  // for the kernels before
  int parity = 0;       // of the next queries
  ForwardRing<2> filled;

  // Passes an item to the warps that compute.
  __device__ void pass(const AttentionItem& item) {
    barrier_wait(copy.barriers.item_free(filled.place), filled.parity ^ 1);
    if (copy.lane() == 0) {
      slots[filled.place] = item;
      barrier_arrive(copy.barriers.item_ready(filled.place));
    }
    __syncwarp();
    filled.next();
  }
  __device__ void wait() {
    if (!waited) wait_for_prior_kernels();
    waited = true;
  }
  // Copies the splits `turns` of an item, and its queries unless another warp does (DecodeQueries). The first tiles go
  // ahead of the queries, which overwrite those of the item before, and `old_tiles` of them, whose keys earlier runs
  // wrote, of the kernels before.
  __device__ void item(const AttentionItem& item, const ForwardTurns& turns, int part_tokens, int old_tiles) {
    for (int first = 0; first < item.tokens; first += part_tokens) {
      const AttentionItem part = part_of(item, first, part_tokens);
      const int tiles = (part.work + kForwardKeys - 1) / kForwardKeys;
      if (turns.first * kSplitTiles >= tiles) continue;
      int ahead = 0;
      bool asked = false;
      const auto ask = [&] {
        asked = true;
        wait();
        if (copy.lane() == 0) copy.queries(part, parity);
      };
      const bool of_values = Plan::kPair && blockIdx.x % 2 == 1;  // of a pair, the block of values
      const auto before = [&](int tile) {
        if (Plan::kFp8 || of_values) {
          if (tile >= old_tiles) wait();
        } else if (!asked && (ahead++ == Plan::kStages - 1 || (!waited && tile >= old_tiles)))
          ask();
      };
      for (int at = turns.first * kSplitTiles; at < tiles; at += turns.step * kSplitTiles) {
        const int count = min(kSplitTiles, tiles - at);
        if constexpr (!Plan::kPair) {
          copy.template split_by_pages<true, true>(part, at, count, before);
        } else if (of_values) {
          copy.template split_by_pages<false, true>(part, at, count, before);
        } else {
          copy.template split_by_pages<true, false>(part, at, count, before);
        }
      }
      if (!Plan::kFp8 && !of_values && !asked) ask();
      parity ^= 1;
    }
  }
  [[nodiscard]] __device__ SequenceTile tile_of(const Sequences& sequences, int item_tokens, int index,
                                                bool one_each) const {
    if (splits.short_tokens > 0) return short_tile(sequences, splits.short_tokens, index);
    return one_each ? sequence_tile(sequences, 1, item_tokens, index) : decode_tile(sequences, item_tokens, index);
  }
  // Every gridDim.x-th of `all` is of this block: all items of each key head, each once for every block that takes
  // splits of it. Every second time the blocks are in reverse order, so that they have as much to do if the items come
  // by length, as those of a server do, whose oldest sequences are the first.
  __device__ void run(const Sequences& sequences, int kv_heads, int item_tokens, int part_tokens, int all) {
    if (!early) wait();
    const auto blocks = static_cast<int>(gridDim.x) / Plan::kCluster;
    const auto block = static_cast<int>(blockIdx.x) / Plan::kCluster;
    for (int first = 0, turn = 0; first < all; first += blocks, turn ^= 1) {
      const int index = first + (turn == 0 ? block : blocks - 1 - block);
      if (index >= all) continue;
      copy.kv_head = index % kv_heads;
      const int part = index / kv_heads;
      const ForwardTurns turns{part % splits.blocks, splits.blocks};
      const SequenceTile tile = tile_of(sequences, item_tokens, part / splits.blocks, all <= blocks);
      if (tile.first >= tile.end) continue;
      const std::int64_t start = tile.outside ? 0 : copy.keys.start(tile);
      AttentionItem found = attention_item(tile, start);
      if (turns.first > 0 && turns.first * kSplitKeys >= found.work) continue;
      found.padding[0] = copy.kv_head;
      found.padding[1] = turns.first;
      pass(found);
      // A sequence that decodes has one new key, its last. Prefill is long compared with what starting ahead saves.
      const int old_tiles = tile.rows == 1 ? static_cast<int>(start) / kForwardKeys : 0;
      if (!tile.outside) item(found, turns, part_tokens, old_tiles);
    }
    AttentionItem none{};
    none.work = -1;
    pass(none);
    wait();
  }
};

// The warp that copies queries to FP8 keys, with the columns in the order of Fp8Tile::load_keys(). Those of the next
// part wait in registers until the scores of this one have been computed, so that no scores wait for memory.
template <class Plan>
struct DecodeQueries {
  static constexpr int kSteps = Plan::kWidth / 16;
  static constexpr int kPieces = Plan::kRows * kSteps / 32;  // of a lane: 16 columns of a row each
  using Pieces = uint4[kPieces][2];

  const TileQueries<__nv_bfloat16>& queries;
  std::uint32_t shared;
  ForwardBarriers barriers;
  int parity = 0;  // of the next queries

  [[nodiscard]] __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  [[nodiscard]] __device__ static int row_of(int piece) { return (piece * 32 + lane()) / kSteps; }
  [[nodiscard]] __device__ static int step_of(int piece) { return (piece * 32 + lane()) % kSteps; }

  __device__ void load(Pieces& held, const AttentionItem& part) const {
    const int group = queries.group();
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int token = row_of(i) / group;
      const int head = part.padding[0] * group + row_of(i) % group;
      held[i][0] = held[i][1] = make_uint4(0, 0, 0, 0);
      if (token >= part.tokens) continue;
      const auto* from = reinterpret_cast<const uint4*>(queries.q + (part.row + token) * queries.q_stride +
                                                        head * Plan::kWidth + step_of(i) * 16);
      held[i][0] = from[0];
      held[i][1] = from[1];
    }
  }
  __device__ void store(const Pieces& held) {
    barrier_wait(barriers.q_free(), parity ^ 1);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const uint4& a = held[i][0];
      const uint4& b = held[i][1];
      const int chunk = step_of(i) % 4 * 2;
      const SharedRows<64> rows{shared + static_cast<std::uint32_t>(Plan::kQuery + step_of(i) / 4 * Plan::kQueryTile)};
      store_shared16(rows.at(row_of(i), chunk), make_uint4(a.x, a.z, b.x, b.z));
      store_shared16(rows.at(row_of(i), chunk + 1), make_uint4(a.y, a.w, b.y, b.w));
    }
    fence_async_shared();
    __syncwarp();
    if (lane() == 0) barrier_arrive(barriers.q_ready());
    parity ^= 1;
  }
  __device__ void run(const unsigned char* slots, int part_tokens) {
    wait_for_prior_kernels();
    ForwardRing<2> taken;
    for (;;) {
      const AttentionItem item = next_item<AttentionItem>(slots, taken, barriers);
      if (item.work < 0) return;
      for (int first = 0; item.work > 0 && first < item.tokens; first += part_tokens) {
        const AttentionItem part = part_of(item, first, part_tokens);
        if (part.padding[1] * kSplitKeys >= part.work) continue;
        Pieces held;
        load(held, part);
        store(held);
      }
    }
  }
};

}  // namespace hone
