// Attention backward on Hopper (sm_90a): bf16, head_dim 64 or 128, or 192 with values of 128, after FlashAttention-3
// (Shah et al., 2024).
//
// One kernel computes the scores once. A block has 128 keys of one key head and goes over the tiles of 64 query rows
// that see them, from the last tile of the sequence down, all query heads of the group for each tile (a turn). Queries
// are in the rows of the keys or, if a context group divides the tokens, in pieces (wgmma_backward_turns.cuh).
//
//                        | tile n-1: head 0, 1, ... | tile n-2: head 0, 1, ... | ... | first tile that sees a key
//   keys  0..63   (WG 1) |  S^T [64, 64] -> P^T -> dS^T
//   keys 64..127  (WG 2) |  the same              dQ [64, head_dim]: half of the columns by each warpgroup
//
// Matmuls of a turn in each warpgroup, M x N x K with d = head_dim; the transposed form leaves P^T and dS^T in
// registers as the A operand of dV and dK:
//   S^T = K Q^T  64 x 64 x d     dV += P^T dO  64 x d x 64     dQ = dS K  64 x d/2 x 128, dS from shared memory
//   dP^T = V dO^T  64 x 64 x d   dK += dS^T Q  64 x d x 64     P = exp2(S scale log2(e) - lse log2(e))
//   dS = P (dP - overlap), where overlap = the sum over a row of dO o (the D of FlashAttention)
//
// Shared memory in KiB for d = 128 (64): K 32 (16), V 32 (16), two stages each of Q 16 (8), dO 16 (8), dS 16 (16) and
// dQ in f32 32 (16); with lse, overlap and barriers 230,592 bytes (132,288): one block to an SM.
// Registers of a thread: 240 to compute (for d = 128: dK 64, dV 64, S^T 32, dP^T 32, dQ 32), 24 to copy.
//
// Heads of 192 with values of 128: K 48, V 32, two stages each of Q 24 and dO 16, one each of dS 16 and dQ 48, in all
// 230,592 bytes. dK and dV are 160 registers of a thread, which leaves room for 48 more, or ptxas serializes all
// products (C7512). Therefore dP^T is started when S^T has been rounded, dS is computed from the rounded P, the A
// operand of dK is in shared memory, and dQ is computed in two parts: 64 columns (32 registers) with dK, then 32 (16
// registers).
//
// Steps of a turn; ready and free are mbarriers of a stage:
//   1. wait for q_ready (Q, lse, overlap), start S^T; wait for grad_o_ready, start dP^T
//   2. P^T in f32, the mask, rounded to bf16; start dV
//   3. dS^T, to shared memory; named barrier 1 (256 threads): all 128 rows of dS are there. Two stages are enough: a
//      warpgroup that is a turn ahead writes the other one
//   4. start dQ and dK; arrive at grad_o_free after dV
//   5. wait for grad_q_free, store dQ in shared memory, arrive at grad_q_ready; arrive at q_free after dK
//   6. an adding warp waits until turns[tile, head] is the number of this block, adds dQ to the sum in f32 in device
//      memory (cp.reduce.async.bulk; block 0 stores), then sets turns[tile, head] to the number of the next block
// Before it a kernel computes overlap and clears the turns; after it one rounds dQ to bf16.
//
// The result does not depend on the batch or on timing. dK and dV are summed in registers in the order of turns; dQ is
// summed in ascending order of key blocks, which step 6 enforces. Blocks start in that order too, and the turns of a
// block are a prefix of those of the block before: it never waits long, and never for a block that has not started.
#pragma once

#include <limits>

#include "backend/cuda/wgmma.cuh"
#include "ops/attention/simple_backward.cuh"
#include "ops/attention/tensor_forward_state.cuh"
#include "ops/attention/wgmma_backward_copy.cuh"
#include "ops/attention/wgmma_backward_plan.cuh"
#include "ops/attention/wgmma_schedule.cuh"

namespace hone {

// Rounds the C registers of one product to bf16 as the A operand of another.
template <int kCount>
__device__ void as_operand(std::uint32_t (&a)[kCount / 2][4], const float (&c)[kCount][4]) {
#pragma unroll
  for (int step = 0; step < kCount / 2; ++step) {
    a[step][0] = packed_bf16(c[2 * step][0], c[2 * step][1]);
    a[step][1] = packed_bf16(c[2 * step][2], c[2 * step][3]);
    a[step][2] = packed_bf16(c[2 * step + 1][0], c[2 * step + 1][1]);
    a[step][3] = packed_bf16(c[2 * step + 1][2], c[2 * step + 1][3]);
  }
}

// Starts c = a b^T over rows of 16 kSteps columns. A step of 16 columns is 32 bytes within a tile.
template <class Plan, int kSteps>
__device__ void start_rows_product(float (&c)[8][4], std::uint64_t a, std::uint64_t b) {
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    const int within = step % 4 * 2;
    warpgroup_multiply<Major::kK, Major::kK>(c, a + step / 4 * (Plan::kKeyTile / 16) + within,
                                             b + step / 4 * (Plan::kQueryTile / 16) + within, step > 0);
  }
}

// All turns of a computing warpgroup, and the block's dk and dv.
template <int kWidth, int kValues, class Turn>
__device__ void wgmma_backward_compute(const AttentionGradients<__nv_bfloat16>& args, std::int64_t key_stride,
                                       const SequenceTile& tile, Turn turn, int turns, int kv_head,
                                       unsigned char* shared_bytes, const WgmmaBackwardBarriers& barriers) {
  using Plan = WgmmaBackward<kWidth, kValues>;
  const std::uint32_t shared = shared_address(shared_bytes);
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int group = static_cast<int>(threadIdx.x) / 128 - 1;
  const int lane = thread % 32;
  const int warp_row = group * 64 + thread / 32 * 16;
  const int group_key = tile.first + group * 64;
  const int key[2] = {tile.first + warp_row + lane / 4, tile.first + warp_row + lane / 4 + 8};
  const float scale = args.scale * kLog2e;
  const auto group_rows = static_cast<std::uint32_t>(group * 64 * 128);
  const std::uint64_t k_rows = warpgroup_operand(shared + Plan::kK + group_rows, 16);
  const std::uint64_t v_rows = warpgroup_operand(shared + Plan::kV + group_rows, 16);
  // Columns of K for dQ, from grad_q_column(group, n) on.
  const auto columns_from = [&](int n) {
    const int column = Plan::grad_q_column(group, n);
    return warpgroup_operand(
        shared + Plan::kK + static_cast<std::uint32_t>(column / 64 * Plan::kKeyTile + column % 64 * 2), Plan::kKeyTile);
  };

  const std::uint64_t k_columns = columns_from(0);
  const std::uint64_t rest_columns = columns_from(Plan::kWide ? 8 : 0);

  float grad_k[kWidth / 8][4];
  float grad_v[kValues / 8][4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) grad_k[n][e] = 0.0f;
#pragma unroll
    for (int n = 0; n < kValues / 8; ++n) grad_v[n][e] = 0.0f;
  }
  barrier_wait(barriers.keys_ready(), 0);
  for (int i = 0; i < turns; ++i, turn.next()) {
    const int stage = i % 2;
    const int parity = i / 2 % 2;
    const std::uint32_t q = shared + Plan::kQ + static_cast<std::uint32_t>(stage * Plan::kQueryBytes);
    const std::uint32_t grad_o = shared + Plan::kGradO + static_cast<std::uint32_t>(stage * Plan::kGradOBytes);
    float weights[8][4];
    float grad_scores[8][4];
    // Step 1: start S^T = K Q^T and dP^T = V dO^T.
    barrier_wait(barriers.q_ready(stage), parity);
    warpgroup_fence();
    start_rows_product<Plan, kWidth / 16>(weights, k_rows, warpgroup_operand(q, 16));
    warpgroup_commit();
    const auto start_grad_weights = [&] {
      start_rows_product<Plan, kValues / 16>(grad_scores, v_rows, warpgroup_operand(grad_o, 16));
      warpgroup_commit();
    };
    if constexpr (!Plan::kWide) {
      barrier_wait(barriers.grad_o_ready(stage), parity);
      start_grad_weights();
    }

    const float* lse =
        reinterpret_cast<const float*>(shared_bytes + Plan::kStatistics + stage * Plan::kStatisticBytes) + lane % 4 * 2;
    const int query = turn.position();
    const bool whole = query >= group_key + 63;  // every query row of the tile sees every key of the warpgroup
    // Step 2: P^T while dP^T runs, then start dV += P^T dO.
    warpgroup_wait<Plan::kWide ? 0 : 1>();
    settle(weights);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float2 row_lse = *reinterpret_cast<const float2*>(lse + 8 * n);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        weights[n][e] = exp2_fast(__fmaf_rn(weights[n][e], scale, e % 2 == 0 ? -row_lse.x : -row_lse.y));
      }
    }
    if (!whole) {
      const int column = query + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (column + 8 * n + e % 2 < key[e / 2]) weights[n][e] = 0.0f;
        }
      }
    }
    std::uint32_t of_weights[4][4];
    as_operand<8>(of_weights, weights);
    const std::uint64_t grad_o_columns = warpgroup_operand(grad_o, Plan::kQueryTile);
    settle(grad_v);
    if constexpr (Plan::kWide) barrier_wait(barriers.grad_o_ready(stage), parity);
    warpgroup_fence();
    if constexpr (Plan::kWide) start_grad_weights();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      warpgroup_multiply<Major::kMn>(grad_v, of_weights[step], grad_o_columns + step * (2048 / 16), 1);
    }
    warpgroup_commit();

    // Step 3: dS^T = P^T (dP^T - overlap) while dV runs; to shared memory for dQ.
    const float* overlap = lse + kWgmmaQueries;
    const auto weight = [&](int n, int e) {
      if constexpr (!Plan::kWide) return weights[n][e];
      const std::uint32_t two = of_weights[n / 2][n % 2 * 2 + e / 2];
      return __uint_as_float(e % 2 == 0 ? two << 16 : two & 0xFFFF0000u);
    };
    warpgroup_wait<1>();
    settle(grad_scores);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float2 row_overlap = *reinterpret_cast<const float2*>(overlap + 8 * n);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        grad_scores[n][e] = weight(n, e) * (grad_scores[n][e] - (e % 2 == 0 ? row_overlap.x : row_overlap.y));
      }
    }
    std::uint32_t of_grad_scores[4][4];
    as_operand<8>(of_grad_scores, grad_scores);
    const std::uint32_t grad_score_tile =
        shared + Plan::kGradScores + static_cast<std::uint32_t>(i % Plan::kGradScoreStages * Plan::kKeyTile);
    if constexpr (Plan::kGradScoreStages == 1) barrier_wait(barriers.grad_scores_free(), i % 2 ^ 1);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      store_matrices(SharedRows<64>{grad_score_tile}.at(warp_row + (lane & 15), 2 * step + (lane >> 4)),
                     of_grad_scores[step]);
    }
    fence_async_shared();
    named_barrier_wait(kConsumersBarrier, Plan::kConsumers);

    // Step 4: start dQ = dS K, over the keys of both warpgroups, and dK += dS^T Q.
    float grad_q[Plan::kWide ? 8 : Plan::kColumns / 8][4];
    float grad_q_rest[Plan::kWide ? 4 : 1][4];
    const std::uint64_t grad_score_rows = warpgroup_operand(grad_score_tile, Plan::kKeyTile);
    const std::uint64_t grad_score_own = warpgroup_operand(grad_score_tile + group_rows, 16);
    const std::uint64_t q_columns = warpgroup_operand(q, Plan::kQueryTile);
    const int slot = i % Plan::kGradQStages;
    const auto start_grad_q = [&]<int kCount>(float(&c)[kCount][4], std::uint64_t columns) {
      warpgroup_fence();
#pragma unroll
      for (int step = 0; step < kWgmmaKeys / 16; ++step) {
        warpgroup_multiply<Major::kMn, Major::kMn>(c, grad_score_rows + step * (2048 / 16),
                                                   columns + step * (2048 / 16), step > 0);
      }
      warpgroup_commit();
    };
    const auto store_grad_q = [&]<int kCount>(float(&c)[kCount][4], int first) {
#pragma unroll
      for (int n = 0; n < kCount; ++n) {
        *reinterpret_cast<float4*>(shared_bytes + Plan::kGradQ + slot * Plan::kGradQBytes +
                                   Plan::grad_q_place(group, thread, first + n) * 4) =
            make_float4(c[n][0], c[n][1], c[n][2], c[n][3]);
      }
    };
    settle(grad_k);
    start_grad_q(grad_q, k_columns);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      const std::uint64_t rows = q_columns + step * (2048 / 16);
      if constexpr (Plan::kWide) {
        warpgroup_multiply<Major::kK, Major::kMn>(grad_k, grad_score_own + 2 * step, rows, 1);
      } else {
        warpgroup_multiply<Major::kMn>(grad_k, of_grad_scores[step], rows, 1);
      }
    }
    warpgroup_commit();
    warpgroup_wait<2>();
    settle(grad_v);
    if (lane == 0) barrier_arrive(barriers.grad_o_free(stage));
    warpgroup_wait<1>();
    settle(grad_q);
    barrier_wait(barriers.grad_q_free(slot), i / Plan::kGradQStages % 2 ^ 1);
    store_grad_q(grad_q, 0);
    if constexpr (Plan::kWide) {
      start_grad_q(grad_q_rest, rest_columns);
      warpgroup_wait<0>();
      settle(grad_q_rest);
      if (lane == 0) barrier_arrive(barriers.grad_scores_free());
      store_grad_q(grad_q_rest, 8);
    }
    fence_async_shared();
    __syncwarp();
    if (lane == 0) barrier_arrive(barriers.grad_q_ready(i % Plan::kGradQSlots));
    warpgroup_wait<0>();
    settle(grad_k);
    if (lane == 0) barrier_arrive(barriers.q_free(stage));
  }

  named_barrier_wait(kConsumersBarrier, Plan::kConsumers);  // both warpgroups have read k and v, which are overwritten
  const int rows = tile.end - tile.first;
  const std::int64_t own = (tile.token + tile.first) * key_stride + kv_head * kWidth;
  const auto target = [&](__nv_bfloat16* to) {
    return [=](int row) { return row < rows ? to + own + row * key_stride : nullptr; };
  };
  const float factor_k[2] = {args.scale, args.scale};
  const float factor_v[2] = {1.0f, 1.0f};
  store_rows(SharedRows<kWidth>{shared + Plan::kK}, warp_row, grad_k, factor_k, kWidth / 8, target(args.grad_k));
  store_rows(SharedRows<kValues>{shared + Plan::kV}, warp_row, grad_v, factor_v, kValues / 8, target(args.grad_v));
  if constexpr (kValues < kWidth) {
    constexpr int kPadding = (kWidth - kValues) / 8;
    for (int place = lane; place < 16 * kPadding; place += 32) {
      const int row = warp_row + place / kPadding;
      if (row >= rows) break;
      *reinterpret_cast<uint4*>(args.grad_v + own + row * key_stride + kValues + place % kPadding * 8) =
          make_uint4(0, 0, 0, 0);
    }
  }
}

// A block has the 128 keys of a tile and one key head. Queries: PackedQueries or PieceQueries; args.sequences are those
// of the queries, args.stride is the queries' too.
template <int kWidth, int kValues, class Queries>
__global__ void HONE_WGMMA_BOUNDS((WgmmaBackward<kWidth, kValues>::kThreads), 1)
    wgmma_attention_backward(AttentionGradients<__nv_bfloat16> args, BackwardKeys keys, Queries queries,
                             WgmmaBackwardWork work, const __grid_constant__ WgmmaBackwardMaps maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Plan = WgmmaBackward<kWidth, kValues>;
  extern __shared__ __align__(1024) unsigned char wgmma_shared[];
  const std::uint32_t shared = shared_address(wgmma_shared);
  const WgmmaBackwardBarriers barriers{shared + Plan::kBarriers};
  const auto kv_head = static_cast<int>(blockIdx.x % static_cast<unsigned>(args.kv_heads));
  const auto index = static_cast<int>(blockIdx.x / static_cast<unsigned>(args.kv_heads));
  SequenceTile tile{};
  if (work.schedule == nullptr) {
    tile = sequence_tile(keys.sequences, 1, kWgmmaKeys, index);
  } else {
    const AttentionSchedule schedule = AttentionSchedule::in(work.schedule);
    if (index < schedule.counts[1]) tile = schedule.items[index].rest();
  }
  if (tile.first >= tile.end) return;
  if (tile.outside) {
    for (std::int64_t row = tile.first; row < tile.end; ++row) {
      const std::int64_t at = (tile.token + row) * keys.stride + kv_head * kWidth + static_cast<int>(threadIdx.x);
      if (threadIdx.x < kWidth) args.grad_k[at] = args.grad_v[at] = narrowed<__nv_bfloat16>(0);
    }
    return;
  }
  const int first_head = kv_head * args.group();
  const auto turn = queries.turn(tile, first_head, first_head + args.group());
  const int turns = queries.tiles(tile) * args.group();
  if (threadIdx.x == 0) barriers.init(Plan::kWarps);
  __syncthreads();
  if (threadIdx.x < 128) {
    fewer_registers<24>();
    if (threadIdx.x == 0) {
      wgmma_backward_copy<Plan>(maps, tile, turn, turns, args.heads, args.kv_heads, kv_head, shared, barriers);
    } else if (threadIdx.x % 32 == 0) {
      wgmma_backward_add<Plan>(work, tile, turn, turns, args.heads, static_cast<int>(threadIdx.x) / 32 - 1, shared,
                               barriers);
    }
  } else {
    more_registers<240>();
    wgmma_backward_compute<kWidth, kValues>(args, keys.stride, tile, turn, turns, kv_head, wgmma_shared, barriers);
  }
#endif
}

}  // namespace hone
