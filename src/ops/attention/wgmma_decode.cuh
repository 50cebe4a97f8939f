// Attention of few query rows on Hopper (sm_90a), as in decoding: bf16, head_dim 64 or 128, keys in pages that are
// copied as boxes, at most eight query heads to a key head. The bits are those of wgmma_forward.cuh.
//
// That kernel multiplies 64 query rows, most of which do not exist when a sequence has one token. Here the query rows
// are the eight columns of both products, and the keys, or the columns of the values, are the 64 rows:
//
//   S^T [128 keys, 8] = K [128, head_dim] Q^T        two products of 64 rows, side by side
//   O^T [head_dim, 8] += V^T [head_dim, 128] P^T     one product of 64 rows for each 64 columns of the values
//
// A sum over k in steps of 16 gives the same bits with either operand as rows, so that S and O are those of the other
// kernel. So are the softmax's sums: there a lane adds the keys of one remainder modulo 8, in ascending order, and here
// a lane does so too, from shared memory.
//
// An item is up to 64 query rows of one key head. A block takes its rows in parts of up to eight, one part after
// another (a sequence that decodes has one part). One warp copies, already for the next item, and one warpgroup
// computes:
//   1. wait for S_i (and O_i-1); exchange the maxima of the four warps; P_i = exp2(S_i scale log2(e) - max) to shared
//      memory, in f32 for the sums and in bf16 for the product; scale O to the new maximum
//   2. wait for K_i+1 and V_i; start S_i+1 and O += P_i V_i, whose instructions alternate because each chain of
//      products alone waits for its own results
//   3. add the weights of tile i to the sums while these run
//
// FP8 pages are copied as bytes, with the scales of each page, and widened in registers to the rows of both products
// (wgmma_decode_widen.cuh), so that the products, and the bits, are those of bf16 pages with the same numbers. A tile
// of a head of 128 then takes 16 KiB and 128 scales of the device's memory and of shared memory in place of 32 KiB. Two
// warpgroups compute, because conversion takes half of their instructions: one has S and P, the other one O and the
// sums, up to two tiles behind. P, the weights in f32 and the factors of O pass through two buffers:
//
//   copy  -> bytes K0 K1 V0 ... -> scores: K, S, P -> weights 0 1 -> values: V, O       384 threads, 64 of them copy
//
// The other warp that copies brings queries to shared memory in the order of the bytes of the keys (DecodeQueries).
#pragma once

#include "ops/attention/wgmma_decode_copy.cuh"
#include "ops/attention/wgmma_decode_pair.cuh"
#include "ops/attention/wgmma_decode_widen.cuh"

namespace hone {

// The role of a warpgroup: it computes all, or with FP8 pages the scores and weights, or what these weigh.
enum class DecodeRole { kAll, kScores, kValues };
template <class Plan>
using DecodeComputeOf =
    std::conditional_t<Plan::kFp8, DecodeFp8Compute<Plan>,
                       std::conditional_t<Plan::kPair, DecodePairCompute<Plan>, DecodeCompute<Plan>>>;

// Computes the splits `turns` of an item.
template <DecodeRole kRole, class Plan>
__device__ void decode_item(DecodeComputeOf<Plan>& compute, const TileQueries<__nv_bfloat16>& queries,
                            const AttentionItem& item, const ForwardTurns& turns, const ForwardSplits& splits,
                            int part_tokens, int& q_parity) {
  const int group = queries.group();
  const int kv_head = item.padding[0];
  for (int first = 0; first < item.tokens; first += part_tokens) {
    const AttentionItem part = part_of(item, first, part_tokens);
    const int rows = part.tokens * group;
    const auto head_row = [&](int row) {
      return static_cast<std::int64_t>(part.row + row / group) * queries.heads + kv_head * group + row % group;
    };
    const int tiles = (part.work + kForwardKeys - 1) / kForwardKeys;
    if (turns.first * kSplitTiles >= tiles) continue;
    if constexpr (kRole != DecodeRole::kValues) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        compute.position[e] = part.position + min((compute.column() + e) / group, part.tokens - 1);
      }
      barrier_wait(compute.barriers.q_ready(), q_parity);
      q_parity ^= 1;
    }
    for (int at = turns.first * kSplitTiles; at < tiles; at += turns.step * kSplitTiles) {
      const int count = min(kSplitTiles, tiles - at);
      const bool ends = at + turns.step * kSplitTiles >= tiles;
      if constexpr (kRole == DecodeRole::kScores) {
        compute.score_split(at, count, ends);
        continue;
      } else if constexpr (kRole == DecodeRole::kValues) {
        compute.value_split(at, count, part.work);
      } else {
        compute.split(at, count, part.work, ends);
      }
      if (splits.per_row == 1) {
        compute.write(queries, rows, head_row);
      } else {
        const std::int64_t moved = splits.first_token(item.sequence, item.key_row) - item.key_row;
        compute.store_split(rows, [&](int row) {
          return splits.at(head_row(row) + moved * queries.heads, at / kSplitTiles, Plan::kWidth);
        });
      }
    }
  }
}
template <DecodeRole kRole, class Plan>
__device__ void decode_items(DecodeComputeOf<Plan>& compute, const TileQueries<__nv_bfloat16>& queries,
                             const unsigned char* slots, const ForwardSplits& splits, int part_tokens) {
  ForwardRing<2> taken;
  for (int q_parity = 0;;) {
    const AttentionItem item = next_item<AttentionItem>(slots, taken, compute.barriers);
    if (item.work < 0) return;
    if (item.work > 0) {
      decode_item<kRole, Plan>(compute, queries, item, {item.padding[1], splits.blocks}, splits, part_tokens, q_parity);
    } else if (kRole != DecodeRole::kScores) {
      write_zero_item<Plan::kWidth>(queries, item, item.padding[0], compute.thread(), Plan::kGroup);
    }
  }
}

// `early`: no node of the program writes cu_seqlens, starts and block_table, so that items are found while earlier
// kernels run, and for a sequence with one new row the tiles before it are copied, which earlier runs wrote. A block
// (or a pair of blocks) takes items of `all` in turns (DecodeCopy::run) and copies for the next one while it computes.
template <class Plan, class Keys>
__global__ void HONE_WGMMA_BOUNDS(Plan::kThreads, Plan::kBlocks)
    wgmma_attention_decode(TileQueries<__nv_bfloat16> queries, Keys keys, ForwardSplits splits, bool early, int all,
                           const __grid_constant__ ForwardMaps maps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char wgmma_shared[];
  const std::uint32_t shared = shared_address(wgmma_shared);
  const ForwardBarriers barriers{shared + Plan::kBarriers};
  const int group = queries.group();
  const int part_tokens = Plan::kRows / group;
  allow_dependent_launch();
  if (threadIdx.x == 0) {
    barrier_init(barriers.q_ready(), 1);
    barrier_init(barriers.q_free(), Plan::kWarps);
    for (int i = 0; i < 2; ++i) {
      barrier_init(barriers.item_ready(i), 1);
      barrier_init(barriers.item_free(i), Plan::kItemReaders);
    }
    if constexpr (Plan::kFp8) {
      const WeightBarriers of_weights{barriers};
      for (int i = 0; i < Plan::kBuffers; ++i) {
        barrier_init(of_weights.filled(i), Plan::kWarps);
        barrier_init(of_weights.read(i), Plan::kWarps);
      }
    }
    for (int i = 0; i < Plan::kStages; ++i) {
      barrier_init(barriers.ready(i), 1);
      barrier_init(barriers.free(i), Plan::kWarps);
    }
    if constexpr (Plan::kPair) {
      const WeightBarriers of_messages{barriers};
      for (int i = 0; i < Plan::kBuffers; ++i) {
        barrier_init(of_messages.filled(i), 1);
        barrier_init(of_messages.read(i), Plan::kWarps);
      }
    }
    barrier_init_done();
    if (Plan::kPair && blockIdx.x % 2 == 1) {
      for (int i = 0; i < Plan::kBuffers; ++i) barrier_expect(WeightBarriers{barriers}.filled(i), Plan::kMessageBytes);
    }
  }
  __syncthreads();
  if constexpr (Plan::kPair) cluster_meet();
  if (threadIdx.x >= Plan::kConsumers) {
    if constexpr (Plan::kMovesRegisters) fewer_registers<Plan::kCopyRegisters>();
    auto* slots = reinterpret_cast<AttentionItem*>(wgmma_shared + Plan::kItems);
    if (threadIdx.x < Plan::kConsumers + 32) {
      const ForwardCopy<Plan, Keys> copy{keys, maps, shared, barriers, 0, group, part_tokens * group * 128, {}, {}};
      DecodeCopy<Plan, Keys>{copy, slots, splits, early}.run(queries.sequences, queries.kv_heads,
                                                             Plan::kItemRows / group, part_tokens, all);
    } else if (Plan::kFp8 && threadIdx.x < Plan::kConsumers + 64) {
      DecodeQueries<Plan>{queries, shared, barriers}.run(wgmma_shared + Plan::kItems, part_tokens);
    }
    return;
  }
  if constexpr (Plan::kMovesRegisters) more_registers<Plan::kRegisters>();
  wait_for_prior_kernels();
  DecodeComputeOf<Plan> compute;
  compute.bytes = wgmma_shared;
  compute.shared = shared;
  compute.barriers = {barriers};
  compute.scale = queries.scale * kLog2e;
  const unsigned char* items = wgmma_shared + Plan::kItems;
  if constexpr (Plan::kPair) {
    if (blockIdx.x % 2 == 0) {
      decode_items<DecodeRole::kScores, Plan>(compute, queries, items, splits, part_tokens);
    } else {
      decode_items<DecodeRole::kValues, Plan>(compute, queries, items, splits, part_tokens);
    }
    cluster_meet();  // until then the second block arrives at barriers in the first one's shared memory
  } else if constexpr (!Plan::kFp8) {
    decode_items<DecodeRole::kAll, Plan>(compute, queries, items, splits, part_tokens);
  } else {
    if (threadIdx.x < Plan::kGroup) {
      decode_items<DecodeRole::kScores, Plan>(compute, queries, items, splits, part_tokens);
    } else {
      decode_items<DecodeRole::kValues, Plan>(compute, queries, items, splits, part_tokens);
    }
  }
#endif
}

[[nodiscard]] inline bool wgmma_decode_takes(std::int64_t group) { return group <= 8; }

// Launches the kernel, or returns false and does nothing if the device cannot run it. keys.boxed() must be true.
template <int kWidth, DecodeForm kForm, class Keys>
[[nodiscard]] bool launch_wgmma_decode(const TileQueries<__nv_bfloat16>& queries, const Keys& keys,
                                       const ForwardSplits& splits, cudaStream_t stream) {
  using Plan = WgmmaDecode<kWidth, kForm, Keys::kFp8>;
  const auto kernel = wgmma_attention_decode<Plan, Keys>;
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  if (attributes.maxThreadsPerBlock < Plan::kThreads) return false;
  const std::int64_t rows = queries.sequences.capacity;
  if (rows == 0) return true;
  const int group = queries.group();
  ForwardMaps maps{};
  maps.q = row_boxes(queries.q, rows, queries.q_stride, queries.heads, kWidth, Plan::kRows / group, group);
  if constexpr (Keys::kFp8) {
    const auto pages = [&](const std::uint8_t* data) {
      return byte_boxes(data, keys.rows, keys.stride, queries.kv_heads, kWidth, keys.block_size,
                        kWidth == 128 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B);
    };
    maps.k = pages(keys.k);
    maps.v = pages(keys.v);
  } else {
    maps.k = row_boxes(keys.k, keys.rows, keys.stride, queries.kv_heads, kWidth, keys.block_size);
    maps.v = row_boxes(keys.v, keys.rows, keys.stride, queries.kv_heads, kWidth, keys.block_size);
  }
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kSharedBytes),
             "cudaFuncSetAttribute");
  const std::int64_t items = splits.short_tokens > 0 ? queries.sequences.count.capacity
                                                     : tiles_capacity(queries.sequences, 1, Plan::kItemRows / group);
  const std::int64_t all = items * queries.kv_heads * splits.blocks;
  const std::int64_t resident = std::int64_t{Plan::kBlocks} * cuda_device().sm_count() / Plan::kCluster;
  launch_dependent({.grid = static_cast<unsigned>(std::min(all, resident) * Plan::kCluster),
                    .block = Plan::kThreads,
                    .shared_bytes = static_cast<std::size_t>(Plan::kSharedBytes),
                    .cluster = Plan::kCluster},
                   stream, kernel, queries, keys, splits, keys.fixed, static_cast<int>(all), maps);
  check_launch("attention of few rows");
  return true;
}

}  // namespace hone
