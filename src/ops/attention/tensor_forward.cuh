// Attention in bf16 on tensor cores, after FlashAttention-2 (Dao, 2023): tiles of 64 keys counted from the sequence's
// start, an online softmax in f32, weights rounded to bf16 for the product with the values.
//
// What a row gets depends on nothing but its query and the keys up to it. Every row is part of a 16-row product of one
// shape, takes the same tiles in the same order, and sums in the same order, whatever the other rows are, however many
// warps a block has, wherever the keys lie; tiles behind its last key, where others go on, leave its numbers as they
// are.
#pragma once

#include <limits>

#include "backend/cuda/mma.cuh"
#include "ops/attention/tiles.cuh"

namespace hone {

inline constexpr int kTensorKeys = 64;  // of a tile; part of what results are

inline constexpr float kLog2e = 1.4426950408889634f;

// A block of kWarps x kTiles x 16 query rows of heads of at most kWidth.
template <int kWidth, int kWarps, int kTiles>
struct TensorForward {
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kRows = kWarps * kTiles * 16;
  static constexpr int kStageBytes = 2 * kTensorKeys * kWidth * 2;  // keys, then values
  static constexpr int kQueryBytes = kRows * kWidth * 2;
  static constexpr int kSharedBytes = kQueryBytes + 2 * kStageBytes;
};

// Of kTiles x 16 rows of a warp: row 8 half + lane / 4 of tile t.
template <int kWidth, int kTiles>
struct TensorForwardState {
  float o[kTiles][kWidth / 8][4];
  float greatest[kTiles][2];  // score
  float sum[kTiles][2];       // this thread's part
  int position[kTiles][2];

  // Products with the keys; what a row does not see becomes -infinity.
  __device__ void scores(float (&s)[kTiles][kTensorKeys / 8][4], const SharedRows<kWidth>& q, int row,
                         const SharedRows<kWidth>& k) const {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int n = 0; n < kTensorKeys / 8; ++n) s[t][n][0] = s[t][n][1] = s[t][n][2] = s[t][n][3] = 0.0f;
    }
#pragma unroll
    for (int step = 0; step < kWidth / 16; ++step) {
      std::uint32_t a[kTiles][4];
#pragma unroll
      for (int t = 0; t < kTiles; ++t) q.load_a(a[t], row + 16 * t, step);
#pragma unroll
      for (int n = 0; n < kTensorKeys / 16; ++n) {
        std::uint32_t b[4];
        k.load_b(b, 16 * n, step);
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          multiply_add(s[t][2 * n], a[t], b[0], b[1]);
          multiply_add(s[t][2 * n + 1], a[t], b[2], b[3]);
        }
      }
    }
  }

  __device__ void mask(float (&s)[kTiles][kTensorKeys / 8][4], int first_key) const {
    const int column = first_key + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int n = 0; n < kTensorKeys / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (column + 8 * n + e % 2 > position[t][e / 2]) s[t][n][e] = -std::numeric_limits<float>::infinity();
        }
      }
    }
  }

  // Scores become weights relative to the greatest score so far, to which sum and output are brought. `scale` holds the
  // factor log2(e): weights are powers of two.
  __device__ void soften(float (&s)[kTiles][kTensorKeys / 8][4], float scale) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float here = s[t][0][2 * half];
#pragma unroll
        for (int n = 0; n < kTensorKeys / 8; ++n) {
          here = fmaxf(here, fmaxf(s[t][n][2 * half], s[t][n][2 * half + 1]));
        }
        here = fmaxf(here, __shfl_xor_sync(0xFFFFFFFFu, here, 1));
        here = fmaxf(here, __shfl_xor_sync(0xFFFFFFFFu, here, 2));
        const float most = fmaxf(here, greatest[t][half]);
        const float offset = most * scale;
        const float decay = exp2_fast((greatest[t][half] - most) * scale);  // 1 where the greatest stays
        greatest[t][half] = most;
        float added = 0.0f;
#pragma unroll
        for (int n = 0; n < kTensorKeys / 8; ++n) {
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            s[t][n][e] = exp2_fast(__fmaf_rn(s[t][n][e], scale, -offset));
            added += s[t][n][e];
          }
        }
        sum[t][half] = __fmaf_rn(sum[t][half], decay, added);
#pragma unroll
        for (int n = 0; n < kWidth / 8; ++n) {
          o[t][n][2 * half] *= decay;
          o[t][n][2 * half + 1] *= decay;
        }
      }
    }
  }

  __device__ void add_values(const float (&weights)[kTiles][kTensorKeys / 8][4], const SharedRows<kWidth>& v) {
#pragma unroll
    for (int step = 0; step < kTensorKeys / 16; ++step) {
      std::uint32_t a[kTiles][4];
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        const auto& low = weights[t][2 * step];
        const auto& high = weights[t][2 * step + 1];
        a[t][0] = packed_bf16(low[0], low[1]);
        a[t][1] = packed_bf16(low[2], low[3]);
        a[t][2] = packed_bf16(high[0], high[1]);
        a[t][3] = packed_bf16(high[2], high[3]);
      }
#pragma unroll
      for (int n = 0; n < kWidth / 16; ++n) {
        std::uint32_t b[4];
        v.load_b_transposed(b, 16 * step, n);
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          multiply_add(o[t][2 * n], a[t], b[0], b[1]);
          multiply_add(o[t][2 * n + 1], a[t], b[2], b[3]);
        }
      }
    }
  }
};

// Keys [key, key + kTensorKeys) and their values into a stage; zeros behind `last`.
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
    copy_async16(k.at(row, chunk), keys.k + offset, valid);
    copy_async16(v.at(row, chunk), keys.v + offset, valid);
  }
}

template <int kWidth, int kWarps, int kTiles, class Keys>
__global__ void __launch_bounds__(kWarps * 32)
    tensor_attention_forward(AttentionQueries<__nv_bfloat16> queries, Keys keys, std::int64_t tiles) {
  using Plan = TensorForward<kWidth, kWarps, kTiles>;
  using Rows = SharedRows<kWidth>;
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  const Rows shared_q{shared_address(shared_bytes)};
  const std::uint32_t stages = shared_q.base + Plan::kQueryBytes;

  const std::int32_t group = queries.group();
  const auto kv_head = static_cast<std::int32_t>(blockIdx.x % static_cast<unsigned>(queries.kv_heads));
  const std::int64_t index = tiles - 1 - blockIdx.x / static_cast<unsigned>(queries.kv_heads);  // the longest first
  const SequenceTile tile = sequence_tile(queries.sequences, group, Plan::kRows, index);
  if (tile.first >= tile.end) return;
  if (tile.outside) {
    write_zero_rows(queries, tile, kv_head);
    return;
  }
  const int rows = tile.end - tile.first;
  const auto head_row = [&](int row) {  // of all tokens' query heads
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

  const std::int64_t start = keys.start(tile);
  const auto position_of = [&](int row) { return static_cast<int>(start + (tile.first + row) / group); };
  const int last = position_of(rows - 1);
  const auto copy_tile = [&](int key) {
    const int stage = key / kTensorKeys % 2;
    copy_keys<kWidth, Plan::kThreads>(keys, tile, kv_head, queries.head_dim, key, last,
                                      stages + stage * Plan::kStageBytes);
    copy_async_commit();
  };
  copy_tile(0);

  const int warp_row = static_cast<int>(threadIdx.x) / 32 * kTiles * 16;
  const int lane_row = static_cast<int>(threadIdx.x) % 32 / 4;
  TensorForwardState<kWidth, kTiles> state;
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      state.greatest[t][half] = -std::numeric_limits<float>::infinity();
      state.sum[t][half] = 0.0f;
      state.position[t][half] = position_of(warp_row + 16 * t + 8 * half + lane_row);
    }
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n)
      state.o[t][n][0] = state.o[t][n][1] = state.o[t][n][2] = state.o[t][n][3] = 0.0f;
  }
  const bool idle = warp_row >= rows;  // as for padding rows, what comes out is not used
  const int warp_first = position_of(warp_row);
  const int warp_last = min(position_of(warp_row + kTiles * 16 - 1), last);
  const float scale = queries.scale * kLog2e;

  for (int key = 0; key <= last; key += kTensorKeys) {
    copy_async_wait<0>();
    __syncthreads();
    if (key + kTensorKeys <= last) copy_tile(key + kTensorKeys);
    if (idle || key > warp_last) continue;
    const Rows k{stages + static_cast<std::uint32_t>(key / kTensorKeys % 2 * Plan::kStageBytes)};
    const Rows v{k.base + kTensorKeys * Rows::kRowBytes};
    float s[kTiles][kTensorKeys / 8][4];
    state.scores(s, shared_q, warp_row, k);
    if (key + kTensorKeys - 1 > warp_first) state.mask(s, key);
    state.soften(s, scale);
    state.add_values(s, v);
  }
  if (idle) return;

#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = state.sum[t][half];
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
      factor[half] = 1.0f / sum;
      const int row = warp_row + 16 * t + 8 * half + lane_row;
      if (threadIdx.x % 4 == 0 && row < rows) {
        queries.lse[head_row(row)] = __fmaf_rn(state.greatest[t][half], queries.scale, logf(sum));
      }
    }
    store_rows(shared_q, warp_row + 16 * t, state.o[t], factor, queries.head_dim / 8,
               [&](int row) { return row < rows ? queries.o + head_row(row) * queries.head_dim : nullptr; });
  }
}

template <int kWidth, int kWarps, int kTiles, class Keys>
void launch_tensor_attention_forward(const AttentionQueries<__nv_bfloat16>& queries, const Keys& keys,
                                     cudaStream_t stream) {
  using Plan = TensorForward<kWidth, kWarps, kTiles>;
  const auto kernel = tensor_attention_forward<kWidth, kWarps, kTiles, Keys>;
  const std::int64_t tiles = tiles_capacity(queries.sequences, queries.group(), Plan::kRows);
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kSharedBytes),
             "cudaFuncSetAttribute");
  kernel<<<static_cast<unsigned>(tiles * queries.kv_heads), Plan::kThreads, Plan::kSharedBytes, stream>>>(queries, keys,
                                                                                                          tiles);
  check_launch("attention");
}

// Where sequences have few query rows each, as in decoding, one warp of a block has them all and the others only copy:
// less shared memory, more blocks at a time. The bits are the same.
template <class Keys>
void launch_attention_forward(const AttentionQueries<__nv_bfloat16>& queries, const Keys& keys, cudaStream_t stream) {
  HONE_ASSERT(queries.scale > 0, "scores are scaled by ", queries.scale);
  const auto launch = [&]<int kWidth, int kTiles>() {
    if constexpr (Keys::kDecodes && kTiles > 1) {
      if (queries.sequences.capacity * queries.group() <= 16 * queries.sequences.count.capacity) {
        launch_tensor_attention_forward<kWidth, 4, 1>(queries, keys, stream);
        return;
      }
    }
    launch_tensor_attention_forward<kWidth, 4, kTiles>(queries, keys, stream);
  };
  if (queries.head_dim <= 64) {
    launch.template operator()<64, 2>();
  } else if (queries.head_dim <= 128) {
    launch.template operator()<128, 2>();
  } else {
    launch.template operator()<256, 1>();
  }
}

}  // namespace hone
