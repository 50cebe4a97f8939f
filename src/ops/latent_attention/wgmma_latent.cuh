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
//         3. if all warps saw K_i+1 in step 2, start S_i+1, and O += P_i V_i behind it, which ends after the maxima of
//            S_i+1 are known; otherwise finish O += P_i V_i and free the stage of tile i first, so that its next copy
//            does not wait for K_i+1
//   WG 1  wait for P_i (1), scale O, O += P_i V_i, free P (2) and the stage
//
// At the end of a split of 1,024 keys its sums are stored for latent_merge, or kept by a block that takes all splits
// of its rows. Both merge in order with the same bits, so that a row's result depends on its query and its keys only:
// tiles and splits are counted from position 0, tiles after the row's last key change nothing, and a dot product has
// one shape whatever the other 63 rows are.
#pragma once

#include "ops/latent_attention/latent_compute.cuh"

namespace hone {

// Tells a computing warpgroup where its block's shared memory and barriers are.
__device__ inline void place_in_block(LatentCompute& compute, unsigned char* bytes, const LatentBarriers& barriers,
                                      int group) {
  compute.bytes = bytes;
  compute.shared = shared_address(bytes);
  compute.barriers = barriers;
  compute.group = group;
}

__global__ void HONE_WGMMA_BOUNDS(LatentShared::kThreads, 1)
    wgmma_latent_attention(LatentQueries queries, const __grid_constant__ LatentMaps maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char wgmma_shared[];
  const std::uint32_t shared = shared_address(wgmma_shared);
  const LatentBarriers barriers{shared + LatentShared::kBarriers};
  allow_dependent_launch();
  if (threadIdx.x == 0) barriers.init(LatentShared::kConsumers / 32);
  __syncthreads();
  wait_for_prior_kernels();
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group == 2) {
    fewer_registers<LatentShared::kCopyRegisters>();
    if (threadIdx.x >= LatentShared::kConsumers + 32) return;
    LatentCopy<LatentShared> copy{
        queries, maps, shared, barriers, reinterpret_cast<LatentItem*>(wgmma_shared + LatentShared::kItems),
        {},      {},   {}};
    copy.run();
  } else if (group == 0) {
    more_registers<LatentShared::kRegisters>();
    LatentLead lead;
    place_in_block(lead, wgmma_shared, barriers, 0);
    lead.scale = queries.scale * kLog2e;
    int q_parity = 0;
    const auto begin = [&](const LatentItem& item) {
      if (item.keys == 0) {
        lead.write_zeros(queries, item);
        return;
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        lead.position[half] = item.position + min(lead.own_row(half) / queries.item_heads, item.tokens - 1);
      }
      barrier_wait(barriers.q_ready(0), q_parity);
      q_parity ^= 1;
    };
    for_latent_splits<LatentShared>(lead, begin, [&](const LatentItem& item, int first, int count, bool last) {
      lead.split(item, first, count, last);
      lead.end_split(queries, item, first / kLatentSplitTiles, last);
    });
    named_barrier_wait(kLatentRead, LatentShared::kConsumers);
  } else {
    more_registers<LatentShared::kRegisters>();
    LatentFollow follow;
    place_in_block(follow, wgmma_shared, barriers, 1);
    named_barrier_arrive(kLatentRead, LatentShared::kConsumers);
    for_latent_splits<LatentShared>(
        follow,
        [&](const LatentItem& item) {
          if (item.keys == 0) follow.write_zeros(queries, item);
        },
        [&](const LatentItem& item, int first, int count, bool last) {
          follow.split(count);
          follow.end_split(queries, item, first / kLatentSplitTiles, last);
        });
  }
#endif
}

}  // namespace hone
