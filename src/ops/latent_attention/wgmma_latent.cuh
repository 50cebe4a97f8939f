// Attention to latent rows on Hopper (sm_90a): bf16, rows of 576 numbers of which 512 are the value, as DeepSeek's
// models have them, after FlashMLA (DeepSeek, 2025).
//
// An item is up to 64 query rows (tokens x heads) of one sequence, which share each tile of 64 keys. Each row of the
// cache is copied once to shared memory and used as key and as value:
//
//                        64 keys                    columns 0 .. 255   256 .. 511
//   64 rows   S = Q K^T [64, 64]   ->  P  ->  O +=  P V (WG 0)         P V (WG 1)
//
// 384 threads, one block to an SM: warpgroup 0 computes scores and weights and half of the output, warpgroup 1 the
// other half, a warp of the third one finds items and copies (LatentCopy). Shared memory: Q 72 KiB, two stages of keys
// of 72 KiB, P 8 KiB. Registers of a thread: O 128, S 32.
//
// Steps for tile i; ready and free are mbarriers of a stage:
//   WG 0  1. S_i is there: mask, maximum, P_i in f32, rounded to bf16
//         2. wait until WG 1 has read P_i-1 (named barrier 2); write P_i and the decay of O; pass them (1)
//         3. start O += P_i V_i; if all warps saw K_i+1 in step 2, start S_i+1 behind it, otherwise free the stage of
//            tile i first, so that its next copy does not wait for K_i+1
//   WG 1  wait for P_i (1), scale O, O += P_i V_i, free P (2) and the stage
//
// At the end of a split of 1,024 keys its sums are stored for attention_merge, or kept by a block that takes all splits
// of its rows. Both merge in order with the same bits, so that a row's result depends on its query and its keys only:
// tiles and splits are counted from position 0, tiles after the row's last key change nothing, and a dot product has
// one shape whatever the other 63 rows are.
#pragma once

#include <algorithm>

#include "ops/attention/tensor_forward.cuh"
#include "ops/latent_attention/latent_compute.cuh"

namespace hone {

// Takes the block's items with one of the warpgroups; compute(item, first tile, tiles, whether they are the last).
template <class Compute, class Begin, class Split>
__device__ void for_latent_items(Compute& compute, const LatentQueries& queries, const Begin& begin,
                                 const Split& split) {
  ForwardRing<2> taken;
  for (;;) {
    const auto item = next_item<LatentItem>(compute.bytes + LatentShared::kItems, taken, compute.barriers);
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

// One thread initializes the barriers; a __syncthreads() must follow.
__device__ inline void init_latent_barriers(const LatentBarriers& barriers) {
  constexpr int kWarps = LatentShared::kConsumers / 32;
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

__global__ void HONE_WGMMA_BOUNDS(LatentShared::kThreads, 1)
    wgmma_latent_attention(LatentQueries queries, const __grid_constant__ LatentMaps maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char wgmma_shared[];
  const std::uint32_t shared = shared_address(wgmma_shared);
  const LatentBarriers barriers{shared + LatentShared::kBarriers};
  allow_dependent_launch();
  if (threadIdx.x == 0) init_latent_barriers(barriers);
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

// Fewer items than this do not fill a GPU, so that each split is an item.
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
  if (queries.box_rows % 8 != 0 || kLatentKeys % queries.box_rows != 0 || block_size % queries.box_rows != 0)
    return false;
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, wgmma_latent_attention), "cudaFuncGetAttributes");
  if (attributes.maxThreadsPerBlock < LatentShared::kThreads) return false;
  constexpr int kAsked = 128 * (2 * LatentShared::kRegisters + LatentShared::kCopyRegisters);
  HONE_ASSERT(attributes.numRegs * LatentShared::kThreads >= kAsked, "a thread is launched with ", attributes.numRegs,
              " registers; setmaxnreg would wait forever for more");
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
  check_cuda(
      cudaFuncSetAttribute(wgmma_latent_attention, cudaFuncAttributeMaxDynamicSharedMemorySize, LatentShared::kBytes),
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
