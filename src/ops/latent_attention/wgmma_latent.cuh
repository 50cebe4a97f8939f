// Attention to latent rows on Hopper (sm_90a): bf16, rows of 576 numbers of which 512 are the value, as DeepSeek's
// models have them, after FlashMLA (DeepSeek, 2025).
//
// An item is up to 64 query rows (tokens x heads) of one sequence, which share each tile of 64 keys. Each row of the
// cache is copied once to shared memory and used as key and as value:
//
//                        64 keys                    columns 0 .. 255   256 .. 511
//   64 rows   S = Q K^T [64, 64]   ->  P  ->  O +=  P V (WG 0)         P V (WG 1)
//
// 384 threads, one block to an SM: warpgroup 0 computes scores and weights and half of the output, warpgroup 1 the other
// half, a warp of the third one finds items and copies (LatentCopy). Shared memory: Q 72 KiB, two stages of keys of 72 KiB, P 8 KiB.
// Registers of a thread: O 128, S 32.
//
// Steps for tile i; ready and free are mbarriers of a stage:
//   WG 0  1. S_i is there: mask, maximum, P_i in f32, rounded to bf16
//         2. wait until WG 1 has read P_i-1 (named barrier 2); write P_i and the decay of O; pass them (1)
//         3. start O += P_i V_i; if K_i+1 has arrived, start S_i+1 behind it, otherwise free the
//            stage of tile i first, so that its next copy does not wait for K_i+1
//   WG 1  wait for P_i (1), scale O, O += P_i V_i, free P (2) and the stage
//
// At the end of a split of 1,024 keys its sums are stored for attention_merge, or kept by a block that takes all splits
// of its rows. Both merge in order with the same bits, so that a row's result depends on its query and its keys only:
// tiles and splits are counted from position 0, tiles after the row's last key change nothing, and a dot product has
// one shape whatever the other 63 rows are.
#pragma once

#include <algorithm>
#include <limits>

#include "ops/attention/tensor_forward.cuh"
#include "ops/latent_attention/latent_tiles.cuh"

namespace hone {

using LatentScores = float[kLatentKeys / 8][4];

// Returns true if the phase of this parity has ended; does not wait.
[[nodiscard]] __device__ inline bool barrier_ended(std::uint32_t barrier, int parity) {
  int ended;
  asm volatile(
      "{\n"
      ".reg .pred ended;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
      "selp.b32 %0, 1, 0, ended;\n"
      "}\n"
      : "=r"(ended)
      : "r"(barrier), "r"(parity)
      : "memory");
  return ended != 0;
}

// State and steps that both warpgroups share. A thread has rows 16 warp + lane / 4 + 8 half of the item, for half 0 and
// 1, and of the output the columns 256 group + 8 n + lane % 4 * 2 and the next.
struct LatentCompute {
  static constexpr int kHalf = kLatentRank / 2;
  unsigned char* bytes;  // shared memory
  std::uint32_t shared;  // its address
  LatentBarriers barriers;
  int group;  // warpgroup
  ForwardRing<LatentShared::kStages> ring;
  ForwardRows<kHalf> rows;

  [[nodiscard]] __device__ static int thread() { return static_cast<int>(threadIdx.x) % 128; }
  [[nodiscard]] __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  [[nodiscard]] __device__ static int own_row(int half) { return thread() / 32 * 16 + lane() / 4 + 8 * half; }
  [[nodiscard]] __device__ float* floats(int offset) const { return reinterpret_cast<float*>(bytes + offset); }
  [[nodiscard]] __device__ std::uint32_t stage(int place) const {
    return shared + static_cast<std::uint32_t>(LatentShared::kStage + place * LatentShared::kStageBytes);
  }
  __device__ void release(int place) const {
    if (lane() == 0) barrier_arrive(barriers.free(place));
  }
  // Scales the output, and starts to add P times the group's half of the values in a stage.
  __device__ void start_values(int place) {
    rows.decay_outputs();
    settle(rows.o);
    const std::uint64_t p = warpgroup_operand(shared + static_cast<std::uint32_t>(LatentShared::kWeights), 16);
    const std::uint64_t v = warpgroup_operand(
        stage(place) + static_cast<std::uint32_t>(group * 4 * LatentShared::kTile), LatentShared::kTile);
    warpgroup_fence();
#pragma unroll
    for (int step = 0; step < kLatentKeys / 16; ++step) {
      warpgroup_multiply<Major::kK, Major::kMn>(rows.o, p + step * 2, v + step * (2048 / 16), 1);
    }
    warpgroup_commit();
  }

  // The row of (token, head) of one of the item's rows; -1 if it does not exist.
  [[nodiscard]] __device__ static std::int64_t head_row(const LatentQueries& queries, const LatentItem& item,
                                                        int row) {
    const int token = row / queries.item_heads;
    const int head = item.head + row % queries.item_heads;
    if (token >= item.tokens || head >= queries.heads) return -1;
    return static_cast<std::int64_t>(item.row + token) * queries.heads + head;
  }

  // Ends a split: stores its sums, or merges them with those of the splits before, and writes the output after the last
  // one. `last`: no split of the item follows in this block.
  __device__ void end_split(const LatentQueries& queries, const LatentItem& item, int split, bool last) {
    std::int64_t at[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) at[half] = head_row(queries, item, own_row(half));
    if (queries.splits.per_row > 1) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (at[half] >= 0) store_split(queries.splits.at(at[half], split, kLatentRank), half);
      }
      return;
    }
    float4* kept = queries.kept + (static_cast<std::int64_t>(blockIdx.x) * 2 + group) * LatentQueries::kKept;
    float4* kept_rows = kept + 32 * 128 + thread() / 4;
    if (split > 0) rows.merge(kept + thread(), 128, kept_rows, queries.scale * kLog2e);
    if (!last) {
      rows.store(kept + thread(), 128, kept_rows);
      return;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.template write<kHalf>(at[half] < 0 ? nullptr : queries.o + at[half] * kLatentRank + group * kHalf, half);
    }
  }
  __device__ void store_split(float* to, int half) const {
    const int column = lane() % 4 * 2;
    if (group == 0 && column == 0) {
      to[kLatentRank] = rows.greatest[half];
      to[kLatentRank + 1] = rows.sum[half];
    }
#pragma unroll
    for (int n = 0; n < kHalf / 8; ++n) {
      *reinterpret_cast<float2*>(to + group * kHalf + 8 * n + column) =
          make_float2(rows.o[n][2 * half], rows.o[n][2 * half + 1]);
    }
  }
  // Zeros the group's half of the output of rows outside all sequences.
  __device__ void write_zeros(const LatentQueries& queries, const LatentItem& item) const {
    constexpr int kChunks = kHalf / 8;
    for (int i = thread(); i < kLatentRows * kChunks; i += 128) {
      const std::int64_t at = head_row(queries, item, i / kChunks);
      if (at < 0) continue;
      reinterpret_cast<uint4*>(queries.o + at * kLatentRank + group * kHalf)[i % kChunks] = make_uint4(0, 0, 0, 0);
    }
  }
};

// Named barriers: P and its decays are in shared memory; P has been read; the totals of a split are in shared memory;
// warpgroup 0 alone.
inline constexpr int kLatentPassed = 1;
inline constexpr int kLatentRead = 2;
inline constexpr int kLatentTotals = 3;
inline constexpr int kLatentWritten = 4;

// Warpgroup 0.
struct LatentLead : LatentCompute {
  float scale;  // of the scores, times log2(e)
  int position[2];

  __device__ void start_scores(LatentScores& s, int place) const {
    const std::uint64_t q = warpgroup_operand(shared + LatentShared::kQuery, 16);
    const std::uint64_t k = warpgroup_operand(stage(place), 16);
    warpgroup_fence();
#pragma unroll
    for (int step = 0; step < kLatentWidth / 16; ++step) {
      const int at = step / 4 * (LatentShared::kTile / 16) + step % 4 * 2;
      warpgroup_multiply<Major::kK, Major::kK>(s, q + at, k + at, step > 0);
    }
    warpgroup_commit();
  }
  // Step 1: turns the scores of a tile into weights, and updates maximum, sum and decay.
  __device__ void online_softmax_step(LatentScores& s, int tile) {
    if ((tile + 1) * kLatentKeys - 1 > position[0]) {
      const int column = tile * kLatentKeys + lane() % 4 * 2;
#pragma unroll
      for (int n = 0; n < kLatentKeys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (column + 8 * n + e % 2 > position[e / 2]) s[n][e] = -std::numeric_limits<float>::infinity();
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float here = fmaxf(s[0][2 * half], s[0][2 * half + 1]);
#pragma unroll
      for (int n = 1; n < kLatentKeys / 8; ++n) here = fmaxf(here, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
      here = fmaxf(here, __shfl_xor_sync(0xFFFFFFFFu, here, 1));
      here = fmaxf(here, __shfl_xor_sync(0xFFFFFFFFu, here, 2));
      const float most = fmaxf(here, rows.greatest[half]);
      // In a later split a row may have seen no key yet: then the weights are exp2(-infinity) = 0 and not NaN.
      const float base = most == -std::numeric_limits<float>::infinity() ? 0.0f : most;
      const float offset = base * scale;
      rows.decay[half] = exp2_fast((rows.greatest[half] - base) * scale);  // 1 if the maximum stays
      rows.greatest[half] = most;
      float even = 0.0f;
      float odd = 0.0f;
#pragma unroll
      for (int n = 0; n < kLatentKeys / 8; ++n) {
        s[n][2 * half] = exp2_fast(__fmaf_rn(s[n][2 * half], scale, -offset));
        s[n][2 * half + 1] = exp2_fast(__fmaf_rn(s[n][2 * half + 1], scale, -offset));
        even += s[n][2 * half];
        odd += s[n][2 * half + 1];
      }
      rows.sum[half] = __fmaf_rn(rows.sum[half], rows.decay[half], even + odd);
    }
  }
  // Step 2. Of the sequence's last tile, rows of values from `keys` on are zeroed: their weights are 0, and 0 times what
  // is there could be NaN.
  __device__ void pass_weights(const LatentScores& s, int place, int keys) {
    named_barrier_wait(kLatentRead, LatentShared::kConsumers);
    const SharedRows<64> to{shared + static_cast<std::uint32_t>(LatentShared::kWeights)};
#pragma unroll
    for (int n = 0; n < kLatentKeys / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t at = to.at(own_row(half), n) + static_cast<std::uint32_t>(lane() % 4) * 4;
        asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(at), "r"(packed_bf16(s[n][2 * half], s[n][2 * half + 1])) : "memory");
      }
    }
    if (lane() % 4 == 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) floats(LatentShared::kDecays)[own_row(half)] = rows.decay[half];
    }
    if (keys < kLatentKeys) {
      const int chunks = (kLatentKeys - keys) * 8;  // of each 64 columns
      for (int i = thread(); i < chunks * (kLatentRank / 64); i += 128) {
        const int part = i / chunks;
        store_zeros16(stage(place) +
                      static_cast<std::uint32_t>(part * LatentShared::kTile + keys * 128 + i % chunks * 16));
      }
    }
    fence_async_shared();
    named_barrier_wait(kLatentWritten, 128);
    named_barrier_arrive(kLatentPassed, LatentShared::kConsumers);
  }

  // Computes tiles [first, first + count) of the item. `ends`: these are its last.
  __device__ void split(const LatentItem& item, int first, int count, bool ends) {
    LatentScores s;
    rows.clear();
    barrier_wait(barriers.ready(ring.place), ring.parity);
    start_scores(s, ring.place);
    warpgroup_wait<0>();
    settle(s);
    for (int i = 0; i < count; ++i) {
      const int place = ring.place;
      ring.next();
      const bool more = i + 1 < count;
      if (ends && !more && lane() == 0) barrier_arrive(barriers.q_free());
      online_softmax_step(s, first + i);
      pass_weights(s, place, min(kLatentKeys, item.keys - (first + i) * kLatentKeys));
      start_values(place);
      bool released = false;
      if (more) {
        const bool arrived = __all_sync(0xFFFFFFFFu, barrier_ended(barriers.ready(ring.place), ring.parity));
        if (!arrived) {
          warpgroup_wait<0>();
          release(place);
          released = true;
        }
        barrier_wait(barriers.ready(ring.place), ring.parity);
        start_scores(s, ring.place);
        if (!released) {
          warpgroup_wait<1>();
          release(place);
          released = true;
        }
      }
      warpgroup_wait<0>();
      settle(s);
      settle(rows.o);
      if (!released) release(place);
    }
    rows.reduce_sums();
    if (lane() % 4 == 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        floats(LatentShared::kGreatest)[own_row(half)] = rows.greatest[half];
        floats(LatentShared::kSums)[own_row(half)] = rows.sum[half];
      }
    }
    named_barrier_wait(kLatentTotals, LatentShared::kConsumers);
  }
};

// Warpgroup 1.
struct LatentFollow : LatentCompute {
  // `count` tiles. P is free again once the totals of the split have been read, too.
  __device__ void split(int count) {
    rows.clear();
    for (int i = 0; i < count; ++i) {
      named_barrier_wait(kLatentPassed, LatentShared::kConsumers);
      barrier_wait(barriers.ready(ring.place), ring.parity);
#pragma unroll
      for (int half = 0; half < 2; ++half) rows.decay[half] = floats(LatentShared::kDecays)[own_row(half)];
      start_values(ring.place);
      warpgroup_wait<0>();
      settle(rows.o);
      release(ring.place);
      ring.next();
      if (i + 1 < count) named_barrier_arrive(kLatentRead, LatentShared::kConsumers);
    }
    named_barrier_wait(kLatentTotals, LatentShared::kConsumers);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.greatest[half] = floats(LatentShared::kGreatest)[own_row(half)];
      rows.sum[half] = floats(LatentShared::kSums)[own_row(half)];
    }
    named_barrier_arrive(kLatentRead, LatentShared::kConsumers);
  }
};

// Takes the block's items with one of the warpgroups; compute(item, first tile, tiles, whether they are the last).
template <class Compute, class Begin, class Split>
__device__ void for_latent_items(Compute& compute, const LatentQueries& queries, const Begin& begin,
                                 const Split& split) {
  ForwardRing<2> taken;
  for (;;) {
    barrier_wait(compute.barriers.item_ready(taken.place), taken.parity);
    const LatentItem item = reinterpret_cast<const LatentItem*>(compute.bytes + LatentShared::kItems)[taken.place];
    __syncwarp();
    if (compute.lane() == 0) barrier_arrive(compute.barriers.item_free(taken.place));
    taken.next();
    if (item.keys < 0) return;
    if (item.keys == 0) {
      compute.write_zeros(queries, item);
      continue;
    }
    begin(item);
    const int end = item.first + item.tiles;
    for (int first = item.first; first < end; first += kLatentSplitTiles) {
      const bool last = first + kLatentSplitTiles >= end;
      split(item, first, min(kLatentSplitTiles, end - first), last);
      compute.end_split(queries, item, first / kLatentSplitTiles, last);
    }
  }
}

__global__ void HONE_WGMMA_BOUNDS(LatentShared::kThreads, 1)
    wgmma_latent_attention(LatentQueries queries, const __grid_constant__ LatentMaps maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char wgmma_shared[];
  const std::uint32_t shared = shared_address(wgmma_shared);
  const LatentBarriers barriers{shared + LatentShared::kBarriers};
  constexpr int kWarps = LatentShared::kConsumers / 32;
  allow_dependent_launch();
  if (threadIdx.x == 0) {
    barrier_init(barriers.q_ready(), 1);
    barrier_init(barriers.q_free(), kWarps / 2);
    for (int i = 0; i < 2; ++i) {
      barrier_init(barriers.item_ready(i), 1);
      barrier_init(barriers.item_free(i), kWarps);
    }
    for (int i = 0; i < LatentShared::kStages; ++i) {
      barrier_init(barriers.ready(i), 1);
      barrier_init(barriers.free(i), kWarps);
    }
    barrier_init_done();
  }
  __syncthreads();
  wait_for_prior_kernels();
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group == 2) {
    fewer_registers<LatentShared::kCopyRegisters>();
    if (threadIdx.x >= LatentShared::kConsumers + 32) return;
    LatentCopy copy{queries, maps, shared, barriers, reinterpret_cast<LatentItem*>(wgmma_shared + LatentShared::kItems),
                    {},      {}};
    copy.run();
  } else if (group == 0) {
    more_registers<LatentShared::kRegisters>();
    LatentLead lead;
    lead.bytes = wgmma_shared;
    lead.shared = shared;
    lead.barriers = barriers;
    lead.group = 0;
    lead.scale = queries.scale * kLog2e;
    int q_parity = 0;
    const auto begin = [&](const LatentItem& item) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        lead.position[half] = item.position + min(lead.own_row(half) / queries.item_heads, item.tokens - 1);
      }
      barrier_wait(barriers.q_ready(), q_parity);
      q_parity ^= 1;
    };
    for_latent_items(lead, queries, begin, [&](const LatentItem& item, int first, int count, bool last) {
      lead.split(item, first, count, last);
    });
    named_barrier_wait(kLatentRead, LatentShared::kConsumers);
  } else {
    more_registers<LatentShared::kRegisters>();
    LatentFollow follow;
    follow.bytes = wgmma_shared;
    follow.shared = shared;
    follow.barriers = barriers;
    follow.group = 1;
    named_barrier_arrive(kLatentRead, LatentShared::kConsumers);
    for_latent_items(
        follow, queries, [](const LatentItem&) {},
        [&](const LatentItem&, int, int count, bool) { follow.split(count); });
  }
#endif
}

// Items of fewer rows than this many do not fill a GPU, so that splits are items of their own.
inline constexpr std::int64_t kFewLatentItems = 132;

// Layout of a launch and its workspace, which follow from capacities only.
struct LatentLaunch {
  std::int64_t item_heads, item_tokens, items;
  bool shares_splits;  // splits are items, merged by another kernel
  std::int64_t splits;
  std::size_t workspace_bytes = 0;

  LatentLaunch(std::int64_t rows, std::int64_t sequences, std::int64_t heads, std::int64_t most_keys) {
    item_heads = std::min<std::int64_t>(heads, kLatentRows);
    item_tokens = kLatentRows / item_heads;
    items = (rows / item_tokens + sequences + 1) * ceil_div(heads, item_heads);
    splits = ceil_div(most_keys, kLatentSplitKeys);
    shares_splits = splits > 1 && items < kFewLatentItems;
    if (shares_splits) {
      workspace_bytes = static_cast<std::size_t>(rows * heads * splits * (kLatentRank + 2)) * sizeof(float);
    } else if (splits > 1) {
      workspace_bytes = static_cast<std::size_t>(kMostKeepingBlocks * 2 * LatentQueries::kKept) * sizeof(float4);
    }
  }
};

// Launches the kernel, or returns false and does nothing if the device cannot run it or pages are no boxes.
[[nodiscard]] inline bool launch_wgmma_latent(LatentQueries queries, const __nv_bfloat16* q, const LatentLaunch& plan,
                                              std::span<std::byte> workspace, cudaStream_t stream) {
  const int block_size = queries.keys.block_size;
  queries.box_rows = std::min(block_size, kLatentKeys);
  if (queries.box_rows % 8 != 0 || kLatentKeys % queries.box_rows != 0 || block_size % queries.box_rows != 0) return false;
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, wgmma_latent_attention), "cudaFuncGetAttributes");
  if (attributes.maxThreadsPerBlock < LatentShared::kThreads) return false;
  const std::int64_t rows = queries.sequences.capacity;
  if (rows == 0) return true;
  HONE_ASSERT(workspace.size() >= plan.workspace_bytes, "the workspace is too small: ", workspace.size(), " bytes");
  queries.item_heads = static_cast<std::int32_t>(plan.item_heads);
  queries.item_tokens = static_cast<std::int32_t>(plan.item_tokens);
  queries.kept = reinterpret_cast<float4*>(workspace.data());
  if (plan.shares_splits) {
    queries.splits = {reinterpret_cast<float*>(workspace.data()), static_cast<std::int32_t>(plan.splits), 1};
  }
  LatentMaps maps{};
  maps.q = row_boxes(q, rows, std::int64_t{queries.heads} * kLatentWidth, queries.heads, kLatentWidth, plan.item_tokens,
                     plan.item_heads);
  maps.k = row_boxes(queries.keys.k, queries.keys.rows, kLatentWidth, 1, kLatentWidth, queries.box_rows);
  check_cuda(cudaFuncSetAttribute(wgmma_latent_attention, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  LatentShared::kBytes),
             "cudaFuncSetAttribute");
  const std::int64_t all = plan.items * (plan.shares_splits ? plan.splits : 1);
  const std::int64_t blocks = std::min({all, std::int64_t{cuda_device().sm_count()}, kMostKeepingBlocks});
  launch_dependent({static_cast<unsigned>(blocks), LatentShared::kThreads, LatentShared::kBytes}, stream,
                   wgmma_latent_attention, queries, maps);
  check_launch("latent attention");
  if (!plan.shares_splits) return true;
  TileQueries<__nv_bfloat16> merged{};
  merged.sequences = queries.sequences;
  merged.o = queries.o;
  merged.heads = queries.heads;
  merged.kv_heads = 1;
  merged.head_dim = merged.value_dim = kLatentRank;
  merged.scale = queries.scale;
  const std::int64_t tiles = tiles_capacity(queries.sequences, queries.heads, kMergeRows);
  launch_dependent({static_cast<unsigned>(tiles), kMergeRows * 32}, stream,
                   attention_merge<PagedKeys<__nv_bfloat16>, kLatentSplitKeys, kLatentRank / 32>, merged, queries.keys,
                   queries.splits, kLatentRank);
  check_launch("latent attention: merge");
  return true;
}

}  // namespace hone
