// Attention forward on Hopper (sm_90a): bf16, head_dim 64 or 128, or 192 with values of 128, after FlashAttention-3
// (Shah et al., 2024).
//
// An item is up to kRows query rows of one key head: 128 in training and prefill, 64 in decoding where wgmma_decode.cuh
// does not apply (more than eight query heads to a key head, or pages that are no boxes). Row r of an item is
// token r / group and query head r % group of that key head (group = heads / kv_heads), so that all query heads of a
// group share each tile of keys and values. One warpgroup copies; each other one computes 64 rows.
//
//                    keys of the sequence, 128 to a tile, counted from position 0
//                    | tile 0 | tile 1 | ... | tile 31 || tile 32 | ...            || end of a split: 4,096 keys
//   64 rows (WG 1)   |  S = Q K^T [64, 128]  ->  P = exp2(S scale log2(e) - max)  ->  O += P V [64, head_dim]
//   64 rows (WG 2)   |  the same; the two warpgroups take turns at starting GEMMs
//
// Shared memory for head_dim 128 (64), in tiles of 64 columns, which are rows of 128 bytes with a 128-byte swizzle:
//   training, prefill   Q 32 KiB (16), ring of 4 stages of 32 KiB (16), 320 bytes of barriers and items: 164,160 bytes
//                       (82,240), one block to an SM. If rows may see more than one split, f32 sums of the splits
//                       before: 230,720 bytes (116,032).
//   192 with 128        Q 48 KiB, 2 stages of 48 KiB for keys and 2 of 32 KiB for values: 213,312 bytes. The sums of
//   the
//                       splits before are in the workspace. Decoding: Q 24 KiB, the same stages, one block to an SM.
//   decoding            Q 16 KiB (8), 3 stages: 115,008 bytes (57,664), two blocks to an SM; with kDeep 6 stages and
//                       one block to an SM. A stage holds 128 keys or 128 values, in the order K0 K1 V0 K2 V1 ...
// Registers of a thread: 224 to compute (200 in decoding), 56 to copy. For values of 128, O is 64 of them, S 64, P 32.
//
// Steps of a computing warpgroup for tile i of a split (i > 0); ready and free are mbarriers of a stage:
//   1. wait for ready(K_i) and for the warpgroup's turn (named barriers 1 and 2); start S_i = Q K_i^T
//   2. wait for ready(V_i-1); start O += P_i-1 V_i-1; pass the turn on
//   3. wait for S_i, arrive at free(K_i); mask, take the row maximum, compute P_i in f32 while the GEMM of 2 runs
//   4. wait for O, arrive at free(V_i-1); round P_i to bf16; scale O to the new maximum
// FP8 pages that several items read are widened before, to rows that are copied like packed keys (widened_pages.cuh);
// of other FP8 pages 128 threads widen the rows of each tile. The copying warpgroup waits for free(stage) and fills it:
// one thread with TMA boxes, for paged keys the lanes of a warp with a box for each page or, if block_size is no
// multiple of 8, 128 threads with 16-byte cp.async. item_ready and item_free pass items of the schedule through two
// slots; q_ready and q_free guard Q, which the next item overwrites after the last S of this one.
//
// A row's bits do not depend on the batch. Its dot products have one wgmma shape whatever the other 63 rows are; it
// takes the tiles of its sequence in ascending order; its sums run over the same four lanes in the same order.
// Tiles after its last key change nothing: P is 0 there (values must be finite) and the maximum stays. Splits are
// summed separately and merged in order, by one block or by many. The schedule decides only which block runs an item.
#pragma once

#include <algorithm>
#include <limits>

#include "backend/cuda/device.h"
#include "ops/attention/wgmma_forward_copy.cuh"
#include "ops/attention/wgmma_forward_rows.cuh"

namespace hone {

// State and steps of a warpgroup that computes 64 query rows.
template <int kWidth, int kValues, int kGroups, bool kDeep>
struct ForwardCompute {
  using Plan = WgmmaForward<kWidth, kValues, kGroups, kDeep>;
  std::uint32_t shared;
  ForwardBarriers barriers;
  int group_index;
  float scale;  // of the scores, times log2(e)
  ForwardStages<Plan> stages;
  ForwardRows<kValues> rows;
  int position[2];  // of the thread's two rows in the sequence

  [[nodiscard]] __device__ static bool leads() { return threadIdx.x % 32 == 0; }
  [[nodiscard]] __device__ std::uint32_t stage(int place) const {
    return shared + static_cast<std::uint32_t>(Plan::stage_at(place));
  }
  __device__ void start_scores(ForwardScores& s, int place) const {
    const std::uint64_t q = warpgroup_operand(shared + static_cast<std::uint32_t>(group_index * 64 * 128), 16);
    const std::uint64_t k = warpgroup_operand(stage(place), 16);
#pragma unroll
    for (int step = 0; step < kWidth / 16; ++step) {
      const int within = step % 4 * 2;
      warpgroup_multiply<Major::kK, Major::kK>(s, q + step / 4 * (Plan::kQueryTile / 16) + within,
                                               k + step / 4 * (Plan::kKeyTile / 16) + within, step > 0);
    }
    warpgroup_commit();
  }
  __device__ void start_values(const ForwardWeights& weights, int place) {
    const std::uint64_t v = warpgroup_operand(stage(place), Plan::kKeyTile);
#pragma unroll
    for (int step = 0; step < kForwardKeys / 16; ++step) {
      warpgroup_multiply<Major::kMn>(rows.o, weights[step], v + step * (2048 / 16), 1);
    }
    warpgroup_commit();
  }
  __device__ void release(int place) const {
    if (leads()) barrier_arrive(barriers.free(place));
  }
  __device__ void wait_turn() const {
    if constexpr (kGroups == 2) named_barrier_wait(1 + group_index, Plan::kConsumers);
  }
  __device__ void pass_turn() const {
    if constexpr (kGroups == 2) named_barrier_arrive(2 - group_index, Plan::kConsumers);
  }
  __device__ void mask(ForwardScores& s, int tile) const {
    if ((tile + 1) * kForwardKeys - 1 > position[0]) mask_scores(s, tile * kForwardKeys, position);
  }

  // Zeros the rows of a tile of values from `row` on, which were not copied: their weights are 0, and 0 times what was
  // there before could be NaN.
  __device__ void clear_values(int place, int row) const {
    const int own = static_cast<int>(threadIdx.x) % 128;
    if (own >= row) {
      for (int part = 0; part < kValues / 64; ++part) {
        const std::uint32_t at = stage(place) + static_cast<std::uint32_t>(part * Plan::kKeyTile + own * 128);
#pragma unroll
        for (int i = 0; i < 8; ++i) store_zeros16(at + 16 * static_cast<std::uint32_t>(i));
      }
    }
    fence_async_shared();
    named_barrier_wait(3 + group_index, 128);
  }

  // Computes the `count` tiles of keys of a split, from tile `first` on, into `rows`. `ends`: this is the item's last
  // split, so that q may be overwritten after the last scores. `keys_in_all`: keys up to the last one of the item if
  // the rows of values after them are not zeros, otherwise at least those of all tiles.
  __device__ void split(int first, int count, bool ends, int keys_in_all) {
    ForwardScores s;
    ForwardWeights weights;
    rows.clear();
    // The first tile: its scores and weights only, so that the loop overlaps values with the next scores.
    const ForwardStage first_keys = stages.template take<false>();
    barrier_wait(barriers.ready(first_keys.place), first_keys.parity);
    warpgroup_fence();
    start_scores(s, first_keys.place);
    warpgroup_wait<0>();
    settle(s);
    release(first_keys.place);
    if (ends && count == 1 && leads()) barrier_arrive(barriers.q_free());
    mask(s, first);
    rows.online_softmax_step(s, scale);
    pack_weights(weights, s);
    for (int i = 1; i < count; ++i) {
      // Steps 1 and 2.
      const ForwardStage keys = stages.template take<false>();
      const ForwardStage values = stages.template take<true>();
      barrier_wait(barriers.ready(keys.place), keys.parity);
      wait_turn();
      settle(rows.o);
      warpgroup_fence();
      start_scores(s, keys.place);
      barrier_wait(barriers.ready(values.place), values.parity);
      start_values(weights, values.place);
      pass_turn();
      // Step 3: the softmax, while O += P_i-1 V_i-1 and the other warpgroup's GEMMs run.
      warpgroup_wait<1>();
      settle(s);
      release(keys.place);
      if (ends && i + 1 == count && leads()) barrier_arrive(barriers.q_free());
      mask(s, first + i);
      rows.online_softmax_step(s, scale);
      // Step 4: O is complete up to tile i - 1.
      warpgroup_wait<0>();
      settle(rows.o);
      release(values.place);
      pack_weights(weights, s);
      rows.decay_outputs();
    }
    // The values of the last tile.
    const ForwardStage values = stages.template take<true>();
    barrier_wait(barriers.ready(values.place), values.parity);
    const int last_keys = keys_in_all - (first + count - 1) * kForwardKeys;
    if (last_keys < kForwardKeys) clear_values(values.place, last_keys);
    settle(rows.o);
    warpgroup_fence();
    start_values(weights, values.place);
    warpgroup_wait<0>();
    settle(rows.o);
    release(values.place);
  }
  // Takes part in the barriers of split() without computing, for a warpgroup none of whose rows is used.
  __device__ void follow(int count, bool ends) {
    const auto drop = [&](const ForwardStage& stage) {
      barrier_wait(barriers.ready(stage.place), stage.parity);
      release(stage.place);
    };
    drop(stages.template take<false>());
    for (int i = 1; i < count; ++i) {
      drop(stages.template take<false>());
      wait_turn();
      pass_turn();
      drop(stages.template take<true>());
    }
    drop(stages.template take<true>());
    if (ends && leads()) barrier_arrive(barriers.q_free());
  }
};

// Computes all rows of an item and writes their results: o and lse, or the splits for attention_merge. `cleared`: rows
// of values after the last key are finite.
template <int kWidth, int kValues, int kGroups, bool kDeep>
__device__ void forward_rows(ForwardCompute<kWidth, kValues, kGroups, kDeep>& compute,
                             const TileQueries<__nv_bfloat16>& queries, const AttentionItem& item,
                             const ForwardTurns& turns, int kv_head, const ForwardSplits& splits,
                             unsigned char* shared_bytes, int q_parity, bool cleared) {
  using Plan = WgmmaForward<kWidth, kValues, kGroups, kDeep>;
  auto& rows = compute.rows;
  const int thread = static_cast<int>(threadIdx.x) - 128;
  const int lane = thread % 32;
  const int group = queries.group();
  const int used = item.tokens * group;
  const int tiles = (item.work + kForwardKeys - 1) / kForwardKeys;
  std::int64_t head_row[2];  // token x heads + query head of the thread's two rows; -1 if the row is not used
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = thread / 32 * 16 + lane / 4 + 8 * half;
    compute.position[half] = item.position + min(row / group, item.tokens - 1);
    head_row[half] =
        row < used ? static_cast<std::int64_t>(item.row + row / group) * queries.heads + kv_head * group + row % group
                   : -1;
  }
  const bool idle = compute.group_index * 64 >= used;
  unsigned char* keeps = shared_bytes + Plan::kKeptRows;
  if constexpr (!Plan::kKeepsInShared) {
    keeps = reinterpret_cast<unsigned char*>(splits.data) + std::size_t{blockIdx.x} * Plan::kKeptBytes;
  }
  float4* kept = reinterpret_cast<float4*>(keeps + (Plan::kKept - Plan::kKeptRows)) + thread;
  float4* kept_rows = reinterpret_cast<float4*>(keeps) + thread / 4;
  // One iteration for each split of the item that this block takes.
  barrier_wait(compute.barriers.q_ready(), q_parity);
  for (int first = turns.first * kSplitTiles; first < tiles; first += turns.step * kSplitTiles) {
    const bool ends = first + turns.step * kSplitTiles >= tiles;
    const int count = min(kSplitTiles, tiles - first);
    if (idle) {
      compute.follow(count, ends);
      continue;
    }
    compute.split(first, count, ends, cleared ? tiles * kForwardKeys : item.work);
    rows.reduce_sums();
    if (splits.per_row > 1) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (head_row[half] >= 0) rows.store_split(splits.at(head_row[half], first / kSplitTiles, kValues), half);
      }
      continue;
    }
    if (first > 0) rows.merge(kept, Plan::kConsumers, kept_rows, compute.scale);
    if (!ends) rows.store(kept, Plan::kConsumers, kept_rows);
  }
  // Without attention_merge: divide by the sum and write o and lse.
  if (idle || splits.per_row > 1) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    rows.template write<kWidth>(head_row[half] >= 0 ? queries.o + head_row[half] * kWidth : nullptr, half);
    if (lane % 4 == 0 && head_row[half] >= 0) {
      queries.lse[head_row[half]] = __fmaf_rn(rows.greatest[half], queries.scale, logf(rows.sum[half]));
    }
  }
}

// Writes zeros for an item outside all sequences.
template <int kWidth>
__device__ void write_zero_item(const TileQueries<__nv_bfloat16>& queries, const AttentionItem& item, int kv_head,
                                int thread, int threads) {
  const int group = queries.group();
  for (int i = thread; i < item.tokens * group * (kWidth / 8); i += threads) {
    const int row = i / (kWidth / 8);
    const std::int64_t head_row =
        static_cast<std::int64_t>(item.row + row / group) * queries.heads + kv_head * group + row % group;
    reinterpret_cast<uint4*>(queries.o + head_row * kWidth)[i % (kWidth / 8)] = make_uint4(0, 0, 0, 0);
    if (i % (kWidth / 8) == 0) queries.lse[head_row] = 0.0f;
  }
}

// If kGroups is 1, a block's index gives its item, of which it takes every splits.blocks-th split. Otherwise blocks
// take items from the schedule until none is left.
template <int kWidth, int kValues, int kGroups, bool kDeep, class Keys>
__global__ void HONE_WGMMA_BOUNDS((WgmmaForward<kWidth, kValues, kGroups, kDeep>::kThreads),
                                  (WgmmaForward<kWidth, kValues, kGroups, kDeep>::kBlocks))
    wgmma_attention_forward(TileQueries<__nv_bfloat16> queries, Keys keys, AttentionSchedule schedule,
                            ForwardSplits splits, int item_tokens, const __grid_constant__ ForwardMaps maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Plan = WgmmaForward<kWidth, kValues, kGroups, kDeep>;
  constexpr bool kScheduled = kGroups > 1;
  constexpr bool kPaged = Keys::kDecodes;
  extern __shared__ __align__(1024) unsigned char wgmma_shared[];
  const std::uint32_t shared = shared_address(wgmma_shared);
  const ForwardBarriers barriers{shared + Plan::kBarriers};
  unsigned char* items = wgmma_shared + Plan::kItems;
  auto* slot = reinterpret_cast<AttentionItem*>(items);
  const auto kv_heads = static_cast<unsigned>(queries.kv_heads);
  int kv_head = static_cast<int>(blockIdx.x % kv_heads);
  begin_dependent_kernel();
  AttentionItem item{};
  ForwardTurns turns{0, 1};
  if constexpr (!kScheduled) {
    const unsigned part = blockIdx.x / kv_heads;
    turns = {static_cast<int>(part % static_cast<unsigned>(splits.blocks)), splits.blocks};
    const SequenceTile tile =
        sequence_tile(queries.sequences, 1, item_tokens, part / static_cast<unsigned>(splits.blocks));
    if (tile.first >= tile.end) return;
    item = attention_item(tile, tile.outside ? 0 : keys.start(tile));
    if constexpr (kPaged) item.key_row = -1;
    if (tile.outside) {
      if (turns.first == 0) {
        write_zero_item<kWidth>(queries, item, kv_head, static_cast<int>(threadIdx.x), Plan::kThreads);
      }
      return;
    }
    if (turns.first * kSplitKeys >= item.work) return;
  }
  bool threads_copy = false;  // all threads of the copying warpgroup, 16 bytes at a time
  if constexpr (kPaged) threads_copy = Keys::kFp8 || !keys.boxed();
  if (threadIdx.x == 0) {
    barrier_init(barriers.q_ready(), 1);
    barrier_init(barriers.q_free(), Plan::kWarps);
    for (int i = 0; i < 2; ++i) {
      barrier_init(barriers.item_ready(i), 1);
      barrier_init(barriers.item_free(i), Plan::kWarps + (kPaged ? threads_copy ? 4 : 1 : 0));
    }
    for (int i = 0; i < Plan::kStages; ++i) {
      barrier_init(barriers.ready(i), threads_copy ? 128 : 1);
      barrier_init(barriers.free(i), Plan::kWarps);
    }
    barrier_init_done();
  }
  __syncthreads();
  int q_parity = 0;
  ForwardRing<2> slots;
  if (threadIdx.x < 128) {
    fewer_registers<Plan::kCopyRegisters>();
    if (threadIdx.x >= (threads_copy ? 128 : kPaged ? 32 : 1)) return;
    ForwardCopy<Plan, Keys> copy{
        keys, maps, shared, barriers, kv_head, queries.group(), item_tokens * queries.group() * 128, {}, {}};
    if constexpr (!kScheduled) {
      if (threadIdx.x == 0) copy.queries(item, 0);
      copy.item(item, turns);
    } else {
      const int all = schedule.counts[1] * static_cast<int>(kv_heads);
      // The first item follows from the block's index, the others from the schedule's counter. Thread 0 passes each to
      // the computing warpgroups through a slot in shared memory.
      ForwardRing<2> filled;
      int index = static_cast<int>(blockIdx.x);
      for (;;) {
        if (threadIdx.x == 0) {
          item.work = -1;
          if (index < all) item = schedule.items[index / static_cast<int>(kv_heads)];
          item.padding[0] = index % static_cast<int>(kv_heads);
          barrier_wait(barriers.item_free(filled.place), filled.parity ^ 1);
          slot[filled.place] = item;
          barrier_arrive(barriers.item_ready(filled.place));
          filled.next();
          if (index < all) index = static_cast<int>(gridDim.x) + atomicAdd(schedule.counts, 1);
        }
        if constexpr (kPaged) item = next_item<AttentionItem>(items, slots, barriers);
        if (item.work < 0) return;
        if (item.work == 0) continue;
        copy.kv_head = item.padding[0];
        if (threadIdx.x == 0) copy.queries(item, q_parity);
        q_parity ^= 1;
        copy.item(item, turns);
      }
    }
  } else {
    more_registers<Plan::kRegisters>();
    ForwardCompute<kWidth, kValues, kGroups, kDeep> compute;
    compute.shared = shared;
    compute.barriers = barriers;
    compute.group_index = static_cast<int>(threadIdx.x) / 128 - 1;
    compute.scale = queries.scale * kLog2e;
    if constexpr (!kScheduled) {
      forward_rows(compute, queries, item, turns, kv_head, splits, wgmma_shared, 0, !kPaged || threads_copy);
    } else {
      if (compute.group_index == 1) compute.pass_turn();
      for (;;) {
        item = next_item<AttentionItem>(items, slots, barriers);
        if (item.work < 0) return;
        kv_head = item.padding[0];
        if (item.work == 0) {
          write_zero_item<kWidth>(queries, item, kv_head, static_cast<int>(threadIdx.x) - 128, Plan::kConsumers);
          continue;
        }
        forward_rows(compute, queries, item, turns, kv_head, splits, wgmma_shared, q_parity, !kPaged || threads_copy);
        q_parity ^= 1;
      }
    }
  }
#endif
}

}  // namespace hone
