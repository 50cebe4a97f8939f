// Attention to latent rows on Hopper (sm_90a) for steps with few tokens a sequence and up to 16 heads: bf16, rows of
// 576 numbers of which 512 are the value. An item is one token with all its heads, which are the columns of the
// products and not their rows: wgmma multiplies 64 rows at least, of which wgmma_latent.cuh would use 16.
//
//              16 heads                              16 heads
//   64 keys    S^T = K Q^T   ->  P^T  ->   512 rows  O^T += V^T P^T
//
// 288 threads, one block to an SM: warpgroup 0 computes scores and weights, warpgroup 1 the output, and a warp finds
// items and copies (LatentCopy). Shared memory: two stages of keys of 72 KiB, queries of two items of 18 KiB, weights
// of two tiles. Registers of a thread of warpgroup 1: O^T 64, and 64 of the splits before.
//
// Steps for tile i; ready and free are mbarriers of a stage and of a tile of weights:
//   WG 0  1. S_i from the stage; maximum over the four warps (named barrier 1), P_i in f32
//         2. when P_i-2 is free: P_i, rounded to bf16, and the decays of O, for warpgroup 1; P_i in f32 for step 3
//         3. the sums of P_i, in the order of wgmma_latent.cuh
//   WG 1  wait for P_i, scale O^T if a maximum has changed, O^T += V_i^T P_i^T, free P_i and the stage
//
// A row's result has the same bits as that of wgmma_latent.cuh: scores and outputs are sums over k in steps of 16 in
// both kernels, sums of weights are added in the same order, and both have the same tiles and splits.
#pragma once

#include "ops/latent_attention/narrow_latent_compute.cuh"

namespace hone {

__global__ void HONE_WGMMA_BOUNDS(NarrowShared::kThreads, 1)
    narrow_latent_attention(LatentQueries queries, const __grid_constant__ LatentMaps maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char wgmma_shared[];
  const std::uint32_t shared = shared_address(wgmma_shared);
  const LatentBarriers barriers{shared + NarrowShared::kBarriers};
  allow_dependent_launch();
  if (threadIdx.x == 0) barriers.init(4);
  __syncthreads();
  wait_for_prior_kernels();
  const int group = static_cast<int>(threadIdx.x) / 128;
  if (group == 2) {
    LatentCopy<NarrowShared> copy{
        queries, maps, shared, barriers, reinterpret_cast<LatentItem*>(wgmma_shared + NarrowShared::kItems),
        {},      {},   {}};
    copy.run();
  } else if (group == 0) {
    NarrowLead lead;
    lead.bytes = wgmma_shared;
    lead.shared = shared;
    lead.barriers = barriers;
    lead.scale = queries.scale * kLog2e;
    for_latent_splits<NarrowShared>(
        lead,
        [&](const LatentItem& item) {
          if (item.keys > 0) barrier_wait(barriers.q_ready(lead.q.place), lead.q.parity);
        },
        [&](const LatentItem& item, int first, int count, bool last) { lead.split(item, first, count, last); });
  } else {
    NarrowFollow follow;
    follow.bytes = wgmma_shared;
    follow.shared = shared;
    follow.barriers = barriers;
    for_latent_splits<NarrowShared>(
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
