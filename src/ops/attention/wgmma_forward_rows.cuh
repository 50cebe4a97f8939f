// Registers of a thread of wgmma_forward.cuh for its two rows (lane / 4 and lane / 4 + 8 of its warp's sixteen), and
// the steps of the online softmax over a tile of keys. A thread's columns are those of PTX's wgmma: 8 n + lane % 4 * 2
// and the next.
#pragma once

#include <cstdint>
#include <limits>

#include "backend/cuda/wgmma.cuh"
#include "ops/attention/tensor_forward_state.cuh"
#include "ops/attention/wgmma_schedule.cuh"

namespace hone {

using ForwardScores = float[kForwardKeys / 8][4];
using ForwardWeights = std::uint32_t[kForwardKeys / 16][4];

// Sets the scores of keys after a row's position to -infinity.
template <int kGroups>
__device__ inline void mask_scores(float (&s)[kGroups][4], int first_key, const int (&position)[2]) {
  const int column = first_key + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int n = 0; n < kGroups; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (column + 8 * n + e % 2 > position[e / 2]) s[n][e] = -std::numeric_limits<float>::infinity();
    }
  }
}

// Rounds weights to bf16 as the A operand of the product with the values.
__device__ inline void pack_weights(ForwardWeights& a, const ForwardScores& s) {
#pragma unroll
  for (int step = 0; step < kForwardKeys / 16; ++step) {
    a[step][0] = packed_bf16(s[2 * step][0], s[2 * step][1]);
    a[step][1] = packed_bf16(s[2 * step][2], s[2 * step][3]);
    a[step][2] = packed_bf16(s[2 * step + 1][0], s[2 * step + 1][1]);
    a[step][3] = packed_bf16(s[2 * step + 1][2], s[2 * step + 1][3]);
  }
}

// Transposes 4 x 4 words among four lanes: each passes its words of chunks 0 .. 3 of a row, and lane q gets chunk q.
[[nodiscard]] __device__ inline uint4 exchange_quads(const std::uint32_t (&word)[4]) {
  const bool odd = (threadIdx.x & 1) != 0;
  const bool high = (threadIdx.x & 2) != 0;
  const std::uint32_t other0 = __shfl_xor_sync(0xFFFFFFFFu, odd ? word[0] : word[1], 1);
  const std::uint32_t other2 = __shfl_xor_sync(0xFFFFFFFFu, odd ? word[2] : word[3], 1);
  const uint2 first = odd ? make_uint2(other0, word[1]) : make_uint2(word[0], other0);
  const uint2 second = odd ? make_uint2(other2, word[3]) : make_uint2(word[2], other2);
  const std::uint32_t x = __shfl_xor_sync(0xFFFFFFFFu, high ? first.x : second.x, 2);
  const std::uint32_t y = __shfl_xor_sync(0xFFFFFFFFu, high ? first.y : second.y, 2);
  return high ? make_uint4(x, y, second.x, second.y) : make_uint4(first.x, first.y, x, y);
}

// Output, maximum and sum of a thread's two rows over the keys so far.
template <int kWidth>
struct ForwardRows {
  float o[kWidth / 8][4];
  float greatest[2];  // maximum of the scores so far
  float sum[2];       // this thread's part of the sum of weights
  float decay[2];     // the factor that brings o to the maximum after the last tile

  [[nodiscard]] __device__ static int first_column() { return static_cast<int>(threadIdx.x) % 4 * 2; }
  __device__ void clear() {
    greatest[0] = greatest[1] = -std::numeric_limits<float>::infinity();
    sum[0] = sum[1] = 0.0f;
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) o[n][0] = o[n][1] = o[n][2] = o[n][3] = 0.0f;
  }

  // A step of the online softmax: turns scores into weights exp2((score - greatest) scale), and scales the sum to the
  // new maximum. `scale` includes log2(e), so that exp2 gives the exponential. Calls between() when the maxima are
  // known.
  template <int kGroups>
  __device__ void online_softmax_step(float (&s)[kGroups][4], float scale) {
    online_softmax_step(s, scale, [] {});
  }
  template <int kGroups, class Between>
  __device__ void online_softmax_step(float (&s)[kGroups][4], float scale, const Between& between) {
    float offset[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float even = s[0][2 * half];
      float odd = s[0][2 * half + 1];
#pragma unroll
      for (int n = 1; n < kGroups; ++n) {
        even = fmaxf(even, s[n][2 * half]);
        odd = fmaxf(odd, s[n][2 * half + 1]);
      }
      float here = fmaxf(even, odd);
      here = fmaxf(here, __shfl_xor_sync(0xFFFFFFFFu, here, 1));
      here = fmaxf(here, __shfl_xor_sync(0xFFFFFFFFu, here, 2));
      const float most = fmaxf(here, greatest[half]);
      // In a later split a row may have seen no key yet: then the weights are exp2(-infinity) = 0 and not NaN.
      const float base = most == -std::numeric_limits<float>::infinity() ? 0.0f : most;
      offset[half] = base * scale;
      decay[half] = exp2_fast((greatest[half] - base) * scale);  // 1 if the maximum stays
      greatest[half] = most;
    }
    between();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float even = 0.0f, odd = 0.0f;
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
        s[n][2 * half] = exp2_fast(__fmaf_rn(s[n][2 * half], scale, -offset[half]));
        s[n][2 * half + 1] = exp2_fast(__fmaf_rn(s[n][2 * half + 1], scale, -offset[half]));
        even += s[n][2 * half];
        odd += s[n][2 * half + 1];
      }
      sum[half] = __fmaf_rn(sum[half], decay[half], even + odd);
    }
  }

  __device__ void decay_outputs() {
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) o[n][e] *= decay[e / 2];
    }
  }

  // Adds the sums of the four threads that share a row; each gets the total.
  __device__ void reduce_sums() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] += __shfl_xor_sync(0xFFFFFFFFu, sum[half], 1);
      sum[half] += __shfl_xor_sync(0xFFFFFFFFu, sum[half], 2);
    }
  }

  // Merges the splits before, as store() left them, with this one. `kept` [kWidth / 8] are this thread's float4s,
  // `stride` apart; `rows` holds the maxima and sums, shared by the four threads of the rows.
  __device__ void merge(const float4* kept, int stride, const float4* rows, float scale) {
    const float4 row = *rows;
    float most[2] = {row.x, row.y};
    float all[2] = {row.z, row.w};
    const SplitFactors first(most[0], all[0], greatest[0], sum[0], scale);
    const SplitFactors second(most[1], all[1], greatest[1], sum[1], scale);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      greatest[half] = most[half];
      sum[half] = all[half];
    }
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) {
      const float4 four = kept[n * stride];
      o[n][0] = first.output(four.x, o[n][0]);
      o[n][1] = first.output(four.y, o[n][1]);
      o[n][2] = second.output(four.z, o[n][2]);
      o[n][3] = second.output(four.w, o[n][3]);
    }
  }
  __device__ void store(float4* kept, int stride, float4* rows) const {
    __syncwarp();
    if (threadIdx.x % 4 == 0) *rows = make_float4(greatest[0], greatest[1], sum[0], sum[1]);
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) kept[n * stride] = make_float4(o[n][0], o[n][1], o[n][2], o[n][3]);
    __syncwarp();
  }

  // Store a row's results of a split in the layout of ForwardSplits: its maximum and sum follow its output.
  __device__ void store_split(float* to, int half) const {
    store_totals(to + kWidth, half);
    store_output(to, half);
  }
  __device__ void store_totals(float* to, int half) const {
    if (first_column() != 0) return;
    to[0] = greatest[half];
    to[1] = sum[half];
  }
  __device__ void store_output(float* to, int half) const {
#pragma unroll
    for (int n = 0; n < kWidth / 8; ++n) {
      *reinterpret_cast<float2*>(to + 8 * n + first_column()) = make_float2(o[n][2 * half], o[n][2 * half + 1]);
    }
  }

  // Writes a row's output, divided by the sum and rounded to bf16, and zeros up to column kAll. All threads of a warp
  // call it; if `to` is null, the row is not written.
  template <int kAll>
  __device__ void write(__nv_bfloat16* to, int half) const {
    const float factor = 1.0f / sum[half];
    const int lane = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int n = 0; n < kWidth / 8; n += 4) {
      std::uint32_t word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) word[i] = packed_bf16(o[n + i][2 * half] * factor, o[n + i][2 * half + 1] * factor);
      const uint4 chunk = exchange_quads(word);
      if (to != nullptr) *reinterpret_cast<uint4*>(to + (n + lane) * 8) = chunk;
    }
    if (to == nullptr) return;
#pragma unroll
    for (int n = kWidth / 8; n < kAll / 8; n += 4) {
      *reinterpret_cast<uint4*>(to + (n + lane) * 8) = make_uint4(0, 0, 0, 0);
    }
  }
};

}  // namespace hone
