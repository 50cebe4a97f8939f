// Registers of a warp of tensor_forward.cuh for its query rows, and its steps for a tile of keys.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "backend/cuda/mma.cuh"

namespace hone {

inline constexpr int kTensorKeys = 64;  // keys in a tile; results depend on it

inline constexpr int kSplitKeys = 4096;  // keys in a split; results depend on it

inline constexpr float kLog2e = 1.4426950408889634f;

// Results of splits in the workspace: [capacity, heads, per_row] of head_dim + 2 floats (output, greatest score, sum).
// If per_row is 1, a block takes all splits of its rows and keeps what it has merged so far there. Otherwise the
// `blocks` blocks of a tile take its splits in turn, and attention_merge computes o and lse from them.
//
// With short_tokens the sequences are divided (mixed_forward.cuh): those of at most so many tokens are of the kernel
// for few query rows and of attention_merge. Their splits are in the rows of their tokens too, or, if that is less,
// each sequence has room for so many tokens (by_sequence): [sequences, short_tokens, heads, per_row].
struct ForwardSplits {
  float* data = nullptr;
  std::int32_t per_row = 1;
  std::int32_t blocks = 1;  // that share a tile
  std::int32_t short_tokens = 0;
  bool by_sequence = false;

  // Where a sequence begins among the tokens in `data`; its first row is `row`.
  [[nodiscard]] __device__ std::int64_t first_token(std::int32_t sequence, std::int64_t row) const {
    return by_sequence ? std::int64_t{sequence} * short_tokens : row;
  }

  // Spreads the splits of a row over several blocks if there are fewer tiles (sequences x key heads) than the blocks
  // that the device runs concurrently, two on each SM. Each split is summed separately and they are merged in order: no
  // bit depends on the number of blocks.
  void share(std::int64_t tiles, int sm_count) {
    if (per_row == 1) return;
    blocks = static_cast<std::int32_t>(std::clamp<std::int64_t>(std::int64_t{2} * sm_count / tiles, 1, per_row));
  }

  [[nodiscard]] __device__ float* at(std::int64_t head_row, int split, int head_dim) const {
    return data + (head_row * per_row + split) * (head_dim + 2);
  }
};

// Factors of two outputs, that of the splits so far and that of the next one, when both are scaled to one maximum. The
// constructor updates `greatest` and `sum` to the merged ones.
struct SplitFactors {
  float merged, next;
  __device__ SplitFactors(float& greatest, float& sum, float next_greatest, float next_sum, float scale) {
    const float most = fmaxf(greatest, next_greatest);
    merged = exp2_fast((greatest - most) * scale);
    next = exp2_fast((next_greatest - most) * scale);
    sum = __fmaf_rn(sum, merged, next_sum * next);
    greatest = most;
  }
  [[nodiscard]] __device__ float output(float o, float next_o) const { return __fmaf_rn(o, merged, next_o * next); }
};

// State of kTiles x 16 rows of a warp. A thread has row 8 half + lane / 4 of tile t, for half 0 and 1, and of it the
// columns 8 n + lane % 4 * 2 and the next.
template <int kWidth, int kTiles, bool kSplits>
struct TensorForwardState {
  float o[kTiles][kWidth / 8][4];
  float greatest[kTiles][2];  // maximum of the scores so far
  float sum[kTiles][2];       // this thread's part of the sum of weights
  int position[kTiles][2];    // of the rows in their sequence

  __device__ void clear() {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      greatest[t][0] = greatest[t][1] = -std::numeric_limits<float>::infinity();
      sum[t][0] = sum[t][1] = 0.0f;
#pragma unroll
      for (int n = 0; n < kWidth / 8; ++n) o[t][n][0] = o[t][n][1] = o[t][n][2] = o[t][n][3] = 0.0f;
    }
  }

  // Adds the sums of the four threads that share a row; each gets the total.
  __device__ void reduce_sums() {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        sum[t][half] += __shfl_xor_sync(0xFFFFFFFFu, sum[t][half], 1);
        sum[t][half] += __shfl_xor_sync(0xFFFFFFFFu, sum[t][half], 2);
      }
    }
  }

  // Merges the results at of(t, half), of the splits before, with this split; null for rows without any.
  template <class Of>
  __device__ void merge(const Of& of, int head_dim, float scale) {
    const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* before = of(t, half);
        if (before == nullptr) continue;
        float most = before[head_dim];
        float all = before[head_dim + 1];
        const SplitFactors factors(most, all, greatest[t][half], sum[t][half], scale);
        greatest[t][half] = most;
        sum[t][half] = all;
#pragma unroll
        for (int n = 0; n < kWidth / 8; ++n) {
          if (8 * n >= head_dim) continue;
          const float2 pair = *reinterpret_cast<const float2*>(before + 8 * n + column);
          o[t][n][2 * half] = factors.output(pair.x, o[t][n][2 * half]);
          o[t][n][2 * half + 1] = factors.output(pair.y, o[t][n][2 * half + 1]);
        }
      }
    }
  }

  // Stores the results at of(t, half); null for rows that are not stored.
  template <class Of>
  __device__ void store(const Of& of, int head_dim) const {
    const int column = static_cast<int>(threadIdx.x) % 4 * 2;
    __syncwarp();  // all lanes have read what is overwritten here
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float* to = of(t, half);
        if (to == nullptr) continue;
        if (column == 0) {
          to[head_dim] = greatest[t][half];
          to[head_dim + 1] = sum[t][half];
        }
#pragma unroll
        for (int n = 0; n < kWidth / 8; ++n) {
          if (8 * n >= head_dim) continue;
          *reinterpret_cast<float2*>(to + 8 * n + column) = make_float2(o[t][n][2 * half], o[t][n][2 * half + 1]);
        }
      }
    }
    __syncwarp();
  }

  // s = Q K^T for the warp's rows and a tile of keys.
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

  // Sets the scores of keys after a row's position to -infinity.
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

  // A step of the online softmax: turns scores into weights exp2((score - greatest) scale), and scales sum and output
  // to the new maximum. `scale` includes log2(e), so that exp2 gives the exponential.
  __device__ void online_softmax_step(float (&s)[kTiles][kTensorKeys / 8][4], float scale) {
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
        // In a later split a row may have seen no key yet: then the weights are exp2(-infinity) = 0 and not NaN.
        const float base = kSplits && most == -std::numeric_limits<float>::infinity() ? 0.0f : most;
        const float offset = base * scale;
        const float decay = exp2_fast((greatest[t][half] - base) * scale);  // 1 if the maximum stays
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

  // o += P V with P rounded to bf16.
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

}  // namespace hone
