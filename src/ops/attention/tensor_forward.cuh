// Attention forward in bf16 with mma.m16n8k16 (sm_80 and later) and head_dim up to 256, after FlashAttention-2 (Dao,
// 2023). It runs if wgmma_forward.cuh does not take the head or the device; launch_attention_forward below chooses.
//
// A block of 4 warps has query rows of one key head: row r is token r / group, query head r % group. Each warp owns
// its rows alone, kTiles x 16 of them, and goes over the keys up to its last row's position.
//
//                         keys, 64 to a tile, counted from position 0 of the sequence
//                         | tile 0 | tile 1 | ... | tile 63 || tile 64 | ...       || end of a split: 4,096 keys
//   warp 0: 32 (16) rows  |  S = Q K^T [16, 64]  ->  P = exp2(S scale log2(e) - max)  ->  O += P V [16, head_dim]
//   warps 1, 2, 3         |  the same
//
//   head_dim      rows of a block   shared memory: Q + 2 stages of 64 keys and values   registers of a thread: O + S
//   up to 64      128               16 +  2 x 16 KiB                                    64 + 64 floats
//   up to 128     128               32 +  2 x 32 KiB                                    128 + 64
//   up to 256      64               32 +  2 x 64 KiB                                    128 + 32
// Decoding with head_dim up to 128 takes 64 rows to a block, 16 to a warp: as a rule one warp has all rows of a
// sequence, the others only copy, and more blocks fit an SM.
//
// Steps for each tile:
//   1. cp.async.wait_group 0: what this thread copied of the tile is in shared memory
//   2. __syncthreads(): so is what all others copied, and no warp reads the other stage any more
//   3. start copying the next tile to that stage
//   4. S, the mask on the diagonal, the online softmax in f32, P rounded to bf16 in registers, O
// At the end of a split a warp stores O, maximum and sum in the workspace, or merges them with the splits before.
//
// A row's bits do not depend on the batch. Each row is part of 16-row products of one shape, takes the tiles of its
// sequence in ascending order and sums in one order, whatever the other rows are, however many warps a block has and
// wherever the keys are stored. Tiles after its last key leave its numbers as they are. Splits have one length and a
// separate softmax each, and are merged in order. A few long sequences can therefore occupy the whole device, one block
// to a split, with the bits of a single block that takes split after split.
#pragma once

#include <algorithm>
#include <span>

#include "backend/cuda/device.h"
#include "backend/cuda/mma.cuh"
#include "ops/attention/fp8_boxes.cuh"
#include "ops/attention/mixed_forward.cuh"
#include "ops/attention/tensor_forward_state.cuh"
#include "ops/attention/tiles.cuh"

namespace hone {

// Sizes of a block of kWarps x kTiles x 16 query rows of heads of at most kWidth.
template <int kWidth, int kWarps, int kTiles>
struct TensorForward {
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kRows = kWarps * kTiles * 16;
  static constexpr int kStageBytes = 2 * kTensorKeys * kWidth * 2;  // keys, then values
  static constexpr int kQueryBytes = kRows * kWidth * 2;
  static constexpr int kSharedBytes = kQueryBytes + 2 * kStageBytes;
};

// Starts copying keys [key, key + kTensorKeys) and their values to a stage; rows after `last` become zeros. Those of
// FP8 pages are widened on the way, and are there once the block has met.
template <int kWidth, int kThreads, class Keys>
__device__ void copy_keys(const Keys& keys, const SequenceTile& tile, int kv_head, int head_dim, int key, int last,
                          std::uint32_t stage) {
  using Rows = SharedRows<kWidth>;
  const Rows k{stage};
  const Rows v{stage + kTensorKeys * Rows::kRowBytes};
  const int head = kv_head * head_dim;
#pragma unroll 4
  for (int i = 0; i < kTensorKeys * Rows::kChunks / kThreads; ++i) {
    const int place = i * kThreads + static_cast<int>(threadIdx.x);
    const int row = place / Rows::kChunks;
    const int chunk = place % Rows::kChunks;
    const bool valid = key + row <= last && chunk * 8 < head_dim;
    const std::int64_t offset = valid ? keys.offset(tile, key + row) + head + chunk * 8 : 0;
    if constexpr (Keys::kFp8) {
      const std::int64_t scale = valid ? keys.scale(tile, key + row, kv_head) : 0;
      const auto widened = [&](const std::uint8_t* bytes, const std::uint8_t* scales) {
        if (!valid) return make_uint4(0, 0, 0, 0);
        return widened_eight(*reinterpret_cast<const uint2*>(bytes + offset), head_factor(scales[scale]));
      };
      store_shared16(k.at(row, chunk), widened(keys.k, keys.key_scales));
      store_shared16(v.at(row, chunk), widened(keys.v, keys.value_scales));
    } else {
      copy_async16(k.at(row, chunk), keys.k + offset, valid);
      copy_async16(v.at(row, chunk), keys.v + offset, valid);
    }
  }
}

// kSplits must be true if a row may see more keys than a split has.
template <int kWidth, int kWarps, int kTiles, bool kSplits, class Keys>
__global__ void __launch_bounds__(kWarps * 32)
    tensor_attention_forward(TileQueries<__nv_bfloat16> queries, Keys keys, std::int64_t tiles, ForwardSplits splits) {
  using Plan = TensorForward<kWidth, kWarps, kTiles>;
  using Rows = SharedRows<kWidth>;
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  const Rows shared_q{shared_address(shared_bytes)};
  const std::uint32_t stages = shared_q.base + Plan::kQueryBytes;

  const std::int32_t group = queries.group();
  const auto kv_head = static_cast<std::int32_t>(blockIdx.x % static_cast<unsigned>(queries.kv_heads));
  const unsigned blocks = kSplits ? static_cast<unsigned>(splits.blocks) : 1;
  const unsigned part = blockIdx.x / static_cast<unsigned>(queries.kv_heads);
  const int turn = kSplits ? static_cast<int>(part % blocks) : 0;  // number of this block among those of its tile
  const std::int64_t index = tiles - 1 - part / blocks;            // the longest first
  const SequenceTile tile = sequence_tile(queries.sequences, group, Plan::kRows, index);
  if (tile.first >= tile.end) return;
  if (tile.outside) {
    if (turn == 0) write_zero_rows(queries, tile, kv_head);
    return;
  }
  const int rows = tile.end - tile.first;
  const std::int64_t start = keys.start(tile);
  const auto position_of = [&](int row) { return static_cast<int>(start + (tile.first + row) / group); };
  const int last = position_of(rows - 1);
  const int first_key = turn * kSplitKeys;
  if (first_key > last) return;
  // The first key of the block's next tile, which at the end of a split is in the block's next split.
  const auto after = [&](int key) {
    const int next = key + kTensorKeys;
    return kSplits && next % kSplitKeys == 0 ? next + static_cast<int>(blocks - 1) * kSplitKeys : next;
  };
  const auto head_row = [&](int row) {  // token x heads + query head
    const int at = tile.first + row;
    return (tile.token + at / group) * queries.heads + static_cast<std::int64_t>(kv_head) * group + at % group;
  };
  shared_q.template copy<Plan::kRows, Plan::kThreads>(
      queries.head_dim / 8, queries.q, [&](int row) -> const __nv_bfloat16* {
        if (row >= rows) return nullptr;
        const int at = tile.first + row;
        return queries.q + (tile.token + at / group) * queries.q_stride +
               (static_cast<std::int64_t>(kv_head) * group + at % group) * queries.head_dim;
      });

  const auto copy_tile = [&](int key) {
    const int stage = key / kTensorKeys % 2;
    copy_keys<kWidth, Plan::kThreads>(keys, tile, kv_head, queries.head_dim, key, last,
                                      stages + stage * Plan::kStageBytes);
    copy_async_commit();
  };
  copy_tile(first_key);

  const int warp_row = static_cast<int>(threadIdx.x) / 32 * kTiles * 16;
  const int lane_row = static_cast<int>(threadIdx.x) % 32 / 4;
  TensorForwardState<kWidth, kTiles, kSplits> state;
  state.clear();
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      state.position[t][half] = position_of(warp_row + 16 * t + 8 * half + lane_row);
    }
  }
  const bool idle = warp_row >= rows;  // no row of the warp is used: it only copies
  const int warp_first = position_of(warp_row);
  const int warp_last = min(position_of(warp_row + kTiles * 16 - 1), last);
  const float scale = queries.scale * kLog2e;

  // The addresses of the rows' results of a split.
  const auto split_of = [&](int split) {
    return [&, split](int t, int half) {
      const int row = warp_row + 16 * t + 8 * half + lane_row;
      return row < rows ? splits.at(head_row(row), split, queries.head_dim) : nullptr;
    };
  };

  for (int key = first_key; key <= last; key = after(key)) {
    copy_async_wait<0>();
    __syncthreads();  // steps 1 and 2: the tile is in shared memory, and the other stage has been read
    if (after(key) <= last) copy_tile(after(key));
    if (idle || key > warp_last) continue;
    const Rows k{stages + static_cast<std::uint32_t>(key / kTensorKeys % 2 * Plan::kStageBytes)};
    const Rows v{k.base + kTensorKeys * Rows::kRowBytes};
    float s[kTiles][kTensorKeys / 8][4];
    state.scores(s, shared_q, warp_row, k);
    if (key + kTensorKeys - 1 > warp_first) state.mask(s, key);
    state.online_softmax_step(s, scale);
    state.add_values(s, v);
    if constexpr (kSplits) {
      const int split = key / kSplitKeys;
      const bool ends = (key + kTensorKeys) % kSplitKeys == 0;
      const bool ends_rows = key + kTensorKeys > warp_last;  // the warp's last tile
      if (blocks > 1 ? ends || ends_rows : ends && !ends_rows) {
        state.reduce_sums();
        if (blocks == 1 && split > 0) state.merge(split_of(0), queries.head_dim, scale);
        state.store(split_of(blocks > 1 ? split : 0), queries.head_dim);
        state.clear();
      }
    }
  }
  if (idle || blocks > 1) return;

  state.reduce_sums();
  if constexpr (kSplits) {
    if (warp_last >= kSplitKeys) state.merge(split_of(0), queries.head_dim, scale);
  }
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      factor[half] = 1.0f / state.sum[t][half];
      const int row = warp_row + 16 * t + 8 * half + lane_row;
      if (threadIdx.x % 4 == 0 && row < rows) {
        queries.lse[head_row(row)] = __fmaf_rn(state.greatest[t][half], queries.scale, logf(state.sum[t][half]));
      }
    }
    store_rows(shared_q, warp_row + 16 * t, state.o[t], factor, queries.head_dim / 8,
               [&](int row) { return row < rows ? queries.o + head_row(row) * queries.head_dim : nullptr; });
  }
}

inline constexpr int kMergeRows = 4;  // rows (token and head) of a block

// Merges the splits of each row in ascending order and writes o and lse. A warp has one token and head. The splits have
// the first `width` columns of the head; the others are zero.
template <class Keys>
__global__ void __launch_bounds__(kMergeRows * 32)
    attention_merge(TileQueries<__nv_bfloat16> queries, Keys keys, ForwardSplits splits, int width) {
  begin_dependent_kernel();
  const SequenceTile tile = sequence_tile(queries.sequences, queries.heads, kMergeRows, blockIdx.x);
  const int row = tile.first + static_cast<int>(threadIdx.x) / 32;
  if (tile.outside || row >= tile.end) return;
  if (splits.short_tokens > 0 && tile.rows > splits.short_tokens * queries.heads) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t head_row = tile.token * queries.heads + row;
  const int count = static_cast<int>(keys.start(tile) + row / queries.heads) / kSplitKeys + 1;
  const float scale = queries.scale * kLog2e;
  const std::int64_t split_row = splits.first_token(tile.sequence, tile.token) * queries.heads + row;
  const float* first = splits.at(split_row, 0, width);
  float greatest = first[width];
  float sum = first[width + 1];
  float o[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) o[i] = lane + 32 * i < width ? first[lane + 32 * i] : 0.0f;
  for (int split = 1; split < count; ++split) {
    const float* next = splits.at(split_row, split, width);
    const SplitFactors factors(greatest, sum, next[width], next[width + 1], scale);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (lane + 32 * i < width) o[i] = factors.output(o[i], next[lane + 32 * i]);
    }
  }
  const float factor = 1.0f / sum;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int column = lane + 32 * i;
    if (column < queries.head_dim) queries.o[head_row * queries.head_dim + column] = __float2bfloat16_rn(o[i] * factor);
  }
  if (lane == 0) queries.lse[head_row] = __fmaf_rn(greatest, queries.scale, logf(sum));
}

template <int kWidth, int kWarps, int kTiles, bool kSplits, class Keys>
void launch_tensor_attention_forward(const TileQueries<__nv_bfloat16>& queries, const Keys& keys,
                                     const ForwardSplits& splits, cudaStream_t stream) {
  using Plan = TensorForward<kWidth, kWarps, kTiles>;
  const auto kernel = tensor_attention_forward<kWidth, kWarps, kTiles, kSplits, Keys>;
  const std::int64_t tiles = tiles_capacity(queries.sequences, queries.group(), Plan::kRows);
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kSharedBytes),
             "cudaFuncSetAttribute");
  kernel<<<static_cast<unsigned>(tiles * queries.kv_heads * splits.blocks), Plan::kThreads, Plan::kSharedBytes,
           stream>>>(queries, keys, tiles, splits);
  check_launch("attention");
}

template <class Keys>
[[nodiscard]] bool launch_wgmma_attention_forward(const TileQueries<__nv_bfloat16>& queries, Keys keys,
                                                  const ForwardPlan& plan, std::byte* workspace, cudaStream_t stream) {
  plan.set_widened(keys, workspace);
  const auto launch_values = [&]<int kWidth, int kValues, int kGroups, bool kDeep>() {
    return launch_wgmma_forward<kWidth, kValues, kGroups, kDeep>(queries, keys, plan.splits, plan.most_keys, workspace,
                                                                 stream);
  };
  const auto launch = [&]<int kWidth, int kGroups, bool kDeep>() {
    return launch_values.template operator()<kWidth, kWidth, kGroups, kDeep>();
  };
  if (!wgmma_forward_takes(queries.group(), queries.head_dim, queries.value_dim)) return false;
  if (queries.head_dim == 192) {
    if constexpr (Keys::kDecodes) {
      if (plan.few) return launch_values.template operator()<192, 128, 1, false>();
    }
    return launch_values.template operator()<192, 128, 2, false>();
  }
  const bool narrow = queries.head_dim == 64;
  if constexpr (Keys::kDecodes) {
    const std::int64_t items = queries.sequences.count.capacity * queries.kv_heads * plan.splits.blocks;
    const bool deep = items <= cuda_device().sm_count();
    if (plan.few && keys.boxed() && wgmma_decode_takes(queries.group())) {
      const auto decode = [&]<int kWidth>() {
        if constexpr (!Keys::kFp8) {
          if (2 * items <= cuda_device().sm_count())
            return launch_wgmma_decode<kWidth, DecodeForm::kPairs>(queries, keys, plan.splits, stream);
        }
        return deep ? launch_wgmma_decode<kWidth, DecodeForm::kDeep>(queries, keys, plan.splits, stream)
                    : launch_wgmma_decode<kWidth, DecodeForm::kMany>(queries, keys, plan.splits, stream);
      };
      return narrow ? decode.template operator()<64>() : decode.template operator()<128>();
    }
    if (plan.few && deep) {
      return narrow ? launch.template operator()<64, 1, true>() : launch.template operator()<128, 1, true>();
    }
    if (plan.few) {
      return narrow ? launch.template operator()<64, 1, false>() : launch.template operator()<128, 1, false>();
    }
  }
  return narrow ? launch.template operator()<64, 2, false>() : launch.template operator()<128, 2, false>();
}

// Calls body.operator()<kWidth, kTiles>(): the columns of a head in shared memory and the tiles of rows of a warp.
template <class Body>
void with_tensor_tiles(std::int64_t head_dim, const Body& body) {
  if (head_dim <= 64) {
    body.template operator()<64, 2>();
  } else if (head_dim <= 128) {
    body.template operator()<128, 2>();
  } else {
    body.template operator()<256, 1>();
  }
}

// Runs attention forward in bf16 with the kernel for this head and device. `workspace` has at least
// plan.workspace_bytes. Decoding takes smaller blocks (plan.few), of which more fit an SM; the bits are the same.
template <class Keys>
void launch_attention_forward(const TileQueries<__nv_bfloat16>& queries, const Keys& keys, ForwardPlan plan,
                              std::span<std::byte> workspace, cudaStream_t stream) {
  HONE_ASSERT(queries.scale > 0, "the scale of the scores must be positive, not ", queries.scale);
  HONE_ASSERT(workspace.size() >= plan.workspace_bytes, "the workspace is too small: ", workspace.size(), " bytes");
  plan.splits.data = reinterpret_cast<float*>(workspace.data());
  plan.splits.share(queries.sequences.count.capacity * queries.kv_heads, cuda_device().sm_count());
  const auto merge = [&](const ForwardSplits& splits, std::int32_t width) {
    const std::int64_t tiles = tiles_capacity(queries.sequences, queries.heads, kMergeRows);
    launch_dependent({static_cast<unsigned>(tiles), kMergeRows * 32}, stream, attention_merge<Keys>, queries, keys,
                     splits, width);
    check_launch("attention: merge");
  };
  if constexpr (Keys::kDecodes) {
    if (plan.short_tokens > 0 && keys.boxed()) {
      ForwardSplits of_short = plan.short_splits(workspace.data(), queries);
      if (launch_mixed_attention(queries, keys, plan, of_short, workspace.data(), stream)) {
        if (of_short.per_row > 1) merge(of_short, queries.value_dim);
        return;
      }
    }
  }
  if (launch_wgmma_attention_forward(queries, keys, plan, workspace.data(), stream)) {
    if (plan.splits.per_row > 1) merge(plan.splits, queries.value_dim);
    return;
  }
  const auto launch_for = [&]<int kWidth, int kTiles, bool kSplits>() {
    if constexpr (Keys::kDecodes && kTiles > 1) {
      if (plan.few) {
        launch_tensor_attention_forward<kWidth, 4, 1, kSplits>(queries, keys, plan.splits, stream);
        return;
      }
    }
    launch_tensor_attention_forward<kWidth, 4, kTiles, kSplits>(queries, keys, plan.splits, stream);
  };
  const auto launch = [&]<int kWidth, int kTiles>() {
    if (plan.most_keys <= kSplitKeys) {
      launch_for.template operator()<kWidth, kTiles, false>();
    } else {
      launch_for.template operator()<kWidth, kTiles, true>();
    }
  };
  with_tensor_tiles(queries.head_dim, launch);
  if (plan.splits.blocks > 1) merge(plan.splits, queries.head_dim);
}

}  // namespace hone
