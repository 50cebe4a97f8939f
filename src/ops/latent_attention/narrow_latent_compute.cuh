// The two warpgroups of narrow_latent.cuh that compute.
#pragma once

#include <limits>

#include "ops/attention/wgmma_forward_rows.cuh"
#include "ops/latent_attention/latent_copy.cuh"

namespace hone {

inline constexpr int kNarrowHeads = 16;

// Offsets in shared memory, in bytes. Queries are tiles of 64 columns: 16 rows of 128 bytes, swizzled.
struct NarrowShared {
  static constexpr int kQueries = 2;  // items whose queries are there
  static constexpr int kStages = 2;   // tiles of keys
  static constexpr int kQueryPart = kNarrowHeads * 128;
  static constexpr int kQueryBytes = kLatentParts * kQueryPart;
  static constexpr int kStage = 0;
  static constexpr int kQuery = kStage + kStages * kLatentTileBytes;
  static constexpr int kRounded = kQuery + kQueries * kQueryBytes;         // bf16 P^T: two of [16 heads, 64 keys]
  static constexpr int kWeightRow = 20;                                    // floats: without conflicts of banks
  static constexpr int kWeights = kRounded + 2 * kQueryPart;               // f32 [64 keys, kWeightRow]
  static constexpr int kMaxima = kWeights + kLatentKeys * kWeightRow * 4;  // f32: two of [16 heads, 4 warps]
  static constexpr int kDecays = kMaxima + 2 * kNarrowHeads * 16;          // f32: two of [16 heads]
  static constexpr int kTotals = kDecays + 2 * kNarrowHeads * 4;           // f32 [2, 16 heads]: maxima and sums
  static constexpr int kBarriers = kTotals + 2 * kNarrowHeads * 4;
  static constexpr int kItems = kBarriers + LatentBarriers::kBytes;  // two slots
  static constexpr int kBytes = kItems + 2 * static_cast<int>(sizeof(LatentItem));
  static constexpr int kThreads = 256 + 32;
};
static_assert(NarrowShared::kBytes <= 232448);

// State and steps that both computing warpgroups share. A thread has the heads head(0) .. head(3).
struct NarrowGroup {
  unsigned char* bytes;  // shared memory
  std::uint32_t shared;  // its address
  LatentBarriers barriers;
  ForwardRing<NarrowShared::kStages> ring;
  ForwardRing<2> weights;
  ForwardRing<1> totals;

  [[nodiscard]] __device__ static int thread() { return static_cast<int>(threadIdx.x) % 128; }
  [[nodiscard]] __device__ static int warp() { return thread() / 32; }
  [[nodiscard]] __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  [[nodiscard]] __device__ static int head(int i) { return i / 2 * 8 + lane() % 4 * 2 + i % 2; }
  [[nodiscard]] __device__ float* floats(int offset) const { return reinterpret_cast<float*>(bytes + offset); }
  [[nodiscard]] __device__ float* decays() const {
    return floats(NarrowShared::kDecays + weights.place * kNarrowHeads * 4);
  }
  // The address of place i of what begins at `offset`; all lanes call it. The exchange tells the compiler that it is
  // the same in all lanes, so that descriptors are computed in uniform registers and not moved there before each wgmma.
  [[nodiscard]] __device__ std::uint32_t place(int offset, int i, int size) const {
    i = __shfl_sync(0xFFFFFFFFu, i, 0);
    return shared + static_cast<std::uint32_t>(offset + i * size);
  }
  [[nodiscard]] __device__ std::uint32_t stage() const {
    return place(NarrowShared::kStage, ring.place, kLatentTileBytes);
  }
  [[nodiscard]] __device__ std::uint32_t rounded() const {
    return place(NarrowShared::kRounded, weights.place, NarrowShared::kQueryPart);
  }
  __device__ static void arrive(std::uint32_t barrier) {
    __syncwarp();
    if (lane() == 0) barrier_arrive(barrier);
  }
};

using NarrowScores = float[2][4];  // head / 8; then 2 h + head % 2

// Warpgroup 0. A thread has the keys own_key() + 8 h.
struct NarrowLead : NarrowGroup {
  float scale;  // of the scores, times log2(e)
  ForwardRing<NarrowShared::kQueries> q;
  float greatest[4];  // of the thread's heads: maximum of the scores so far
  float sum;          // of sum_head(): of the weights of the keys that are sum_key() modulo 8
  int maxima = 0;     // which of the two

  [[nodiscard]] __device__ static int own_key() { return warp() * 16 + lane() / 4; }
  [[nodiscard]] __device__ static int sum_head() { return thread() / 8; }
  [[nodiscard]] __device__ static int sum_key() { return thread() % 8; }
  __device__ static void meet() { named_barrier_wait(1, 128); }

  __device__ void compute_scores(NarrowScores& s) const {
    const std::uint64_t of_q = warpgroup_operand(place(NarrowShared::kQuery, q.place, NarrowShared::kQueryBytes), 16);
    const std::uint64_t of_k = latent_operand(stage());
    warpgroup_fence();
#pragma unroll
    for (int step = 0; step < kLatentWidth / 16; ++step) {
      warpgroup_multiply<Major::kK, Major::kK>(s, of_k + step / 4 * (kLatentPartBytes / 16) + step % 4 * 2,
                                               of_q + step / 4 * (NarrowShared::kQueryPart / 16) + step % 4 * 2,
                                               step > 0);
    }
    warpgroup_commit();
    warpgroup_wait<0>();
    settle(s);
  }
  // The maximum of each of the thread's heads over the first `keys` keys of the tile; masks the scores of the others.
  __device__ void find_maxima(NarrowScores& s, int keys, float (&most)[4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (own_key() + 8 * h >= keys) s[i / 2][2 * h + i % 2] = -std::numeric_limits<float>::infinity();
      }
      most[i] = fmaxf(s[i / 2][i % 2], s[i / 2][2 + i % 2]);
    }
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2) {
#pragma unroll
      for (int i = 0; i < 4; ++i) most[i] = fmaxf(most[i], __shfl_xor_sync(0xFFFFFFFFu, most[i], distance));
    }
    float* of_warps = floats(NarrowShared::kMaxima + maxima * kNarrowHeads * 16);
    maxima ^= 1;
    if (lane() < 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) of_warps[head(i) * 4 + warp()] = most[i];
    }
    meet();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float4 four = *reinterpret_cast<const float4*>(of_warps + head(i) * 4);
      most[i] = fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w));
    }
  }
  // Step 1: the online softmax of ForwardRows without its sums.
  __device__ void weigh(NarrowScores& s, int keys, float (&decay)[4]) {
    float most[4];
    find_maxima(s, keys, most);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      most[i] = fmaxf(most[i], greatest[i]);
      const float base = most[i] == -std::numeric_limits<float>::infinity() ? 0.0f : most[i];
      const float offset = base * scale;
      decay[i] = exp2_fast((greatest[i] - base) * scale);  // 1 if the maximum stays
      greatest[i] = most[i];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float& score = s[i / 2][2 * h + i % 2];
        score = exp2_fast(__fmaf_rn(score, scale, -offset));
      }
    }
  }
  // Step 2.
  __device__ void pass_weights(const NarrowScores& s, int keys, const float (&decay)[4]) {
    barrier_wait(barriers.weights_free(weights.place), weights.parity ^ 1);
    std::uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float first = s[i / 2][i % 2 * 2];
      const float second = s[i / 2][i % 2 * 2 + 1];
      const int at = (own_key() + i % 2 * 8) * NarrowShared::kWeightRow + i / 2 * 8 + lane() % 4 * 2;
      *reinterpret_cast<float2*>(floats(NarrowShared::kWeights) + at) = make_float2(first, second);
      words[i] = packed_bf16(first, second);
    }
    const SharedRows<64> to{rounded()};
    const int matrix = lane() / 8;  // of eight heads and eight keys
    store_matrices_transposed(to.at(matrix / 2 * 8 + lane() % 8, 2 * warp() + matrix % 2), words);
    if (thread() < 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) decays()[head(i)] = decay[i];
    }
    if (keys < kLatentKeys) zero_latent_values(stage(), keys);
    fence_async_shared();
    arrive(barriers.weights_ready(weights.place));
  }
  // Step 3. In ForwardRows lane q of four adds the keys 2 q (even) and 2 q + 1 (odd) modulo 8.
  __device__ void add_weights() {
    meet();
    const float* own = floats(NarrowShared::kWeights) + sum_key() * NarrowShared::kWeightRow + sum_head();
    float added = own[0];
#pragma unroll
    for (int n = 1; n < kLatentKeys / 8; ++n) added += own[n * 8 * NarrowShared::kWeightRow];
    added += __shfl_xor_sync(0xFFFFFFFFu, added, 1);
    sum = __fmaf_rn(sum, decays()[sum_head()], added);
  }
  // Computes tiles [first, first + count) of the item. `ends`: these are its last.
  __device__ void split(const LatentItem& item, int first, int count, bool ends) {
    sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) greatest[i] = -std::numeric_limits<float>::infinity();
    for (int i = 0; i < count; ++i) {
      NarrowScores s;
      float decay[4];
      const int keys = min(kLatentKeys, item.keys - (first + i) * kLatentKeys);
      barrier_wait(barriers.ready(ring.place), ring.parity);
      compute_scores(s);
      if (ends && i + 1 == count) {
        arrive(barriers.q_free(q.place));
        q.next();
      }
      weigh(s, keys, decay);
      pass_weights(s, keys, decay);
      add_weights();
      ring.next();
      weights.next();
    }
    pass_totals();
  }
  __device__ void pass_totals() {
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 4);
    barrier_wait(barriers.totals_free(), totals.parity ^ 1);
    totals.next();
    float* to = floats(NarrowShared::kTotals);
    if (thread() < 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[head(i)] = greatest[i];
    }
    if (sum_key() == 0) to[kNarrowHeads + sum_head()] = sum;
    arrive(barriers.totals_ready());
  }
};

// Warpgroup 1. A thread has the columns 64 part + own_column() + 8 h of the output.
struct NarrowFollow : NarrowGroup {
  static constexpr int kValueParts = kLatentRank / 64;
  float o[kValueParts][2][4];       // part, head / 8; then 2 h + head % 2
  float merged[kValueParts][2][4];  // of the splits before
  float greatest[4], sum[4];        // of the split
  float merged_greatest[4], merged_sum[4];

  [[nodiscard]] __device__ static int own_column() { return warp() * 16 + lane() / 4; }

  __device__ void settle_output() {
#pragma unroll
    for (int part = 0; part < kValueParts; ++part) settle(o[part]);
  }
  __device__ void scale_output() {
    float decay[4];
    bool changed = false;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      decay[i] = decays()[head(i)];
      changed |= decay[i] != 1.0f;
    }
    if (!__any_sync(0xFFFFFFFFu, changed)) return;
#pragma unroll
    for (int part = 0; part < kValueParts; ++part) {
#pragma unroll
      for (int i = 0; i < 8; ++i) o[part][i / 4][i % 4] *= decay[i / 4 * 2 + i % 2];
    }
  }
  __device__ void add_values() {
    const std::uint64_t p = warpgroup_operand(rounded(), 16);
    const std::uint64_t v = latent_operand(stage());
    settle_output();
    warpgroup_fence();
#pragma unroll
    for (int step = 0; step < kLatentKeys / 16; ++step) {
#pragma unroll
      for (int part = 0; part < kValueParts; ++part) {
        warpgroup_multiply<Major::kMn, Major::kK>(
            o[part], v + (part * kLatentPartBytes + step * 2 * kLatentBoxBytes) / 16, p + step * 2, 1);
      }
    }
    warpgroup_commit();
    warpgroup_wait<0>();
    settle_output();
  }
  // `count` tiles, and the totals of the split.
  __device__ void split(int count) {
#pragma unroll
    for (int part = 0; part < kValueParts; ++part) {
#pragma unroll
      for (int i = 0; i < 8; ++i) o[part][i / 4][i % 4] = 0.0f;
    }
    for (int i = 0; i < count; ++i) {
      barrier_wait(barriers.ready(ring.place), ring.parity);
      barrier_wait(barriers.weights_ready(weights.place), weights.parity);
      scale_output();
      add_values();
      arrive(barriers.free(ring.place));
      arrive(barriers.weights_free(weights.place));
      ring.next();
      weights.next();
    }
    barrier_wait(barriers.totals_ready(), totals.parity);
    totals.next();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      greatest[i] = floats(NarrowShared::kTotals)[head(i)];
      sum[i] = floats(NarrowShared::kTotals)[kNarrowHeads + head(i)];
    }
    arrive(barriers.totals_free());
  }
  // Ends a split: stores its sums, or merges them with those of the splits before, and writes the output after the last
  // one. `last`: no split of the item follows in this block.
  __device__ void end_split(const LatentQueries& queries, const LatentItem& item, int split, bool last) {
    const std::int64_t row = static_cast<std::int64_t>(item.row) * queries.heads;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool exists = head(i) < queries.heads;
      if (queries.splits.per_row > 1) {
        if (exists) store(queries.splits.at(row + head(i), split, kLatentRank), i);
        continue;
      }
      merge(i, split == 0, queries.scale * kLog2e);
      if (last && exists) write(queries.o + (row + head(i)) * kLatentRank, i);
    }
  }
  // Head i of the thread: store the sums of the split, merge them, and write the merged output.
  __device__ void store(float* to, int i) const {
#pragma unroll
    for (int part = 0; part < kValueParts; ++part) {
      to[part * 64 + own_column()] = o[part][i / 2][i % 2];
      to[part * 64 + own_column() + 8] = o[part][i / 2][2 + i % 2];
    }
    if (thread() >= 4) return;
    to[kLatentRank] = greatest[i];
    to[kLatentRank + 1] = sum[i];
  }
  __device__ void merge(int i, bool first, float scale) {
    if (first) merged_greatest[i] = greatest[i];
    const SplitFactors factors(merged_greatest[i], merged_sum[i], greatest[i], sum[i], scale);
    if (first) merged_sum[i] = sum[i];
#pragma unroll
    for (int part = 0; part < kValueParts; ++part) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float next = o[part][i / 2][2 * h + i % 2];
        float& to = merged[part][i / 2][2 * h + i % 2];
        to = first ? next : factors.output(to, next);
      }
    }
  }
  __device__ void write(__nv_bfloat16* to, int i) const {
    const float factor = 1.0f / merged_sum[i];
#pragma unroll
    for (int part = 0; part < kValueParts; ++part) {
      to[part * 64 + own_column()] = __float2bfloat16_rn(merged[part][i / 2][i % 2] * factor);
      to[part * 64 + own_column() + 8] = __float2bfloat16_rn(merged[part][i / 2][2 + i % 2] * factor);
    }
  }
  // Zeros the output of a row outside all sequences.
  __device__ void write_zeros(const LatentQueries& queries, const LatentItem& item) const {
    auto* to = reinterpret_cast<uint4*>(queries.o + static_cast<std::int64_t>(item.row) * queries.heads * kLatentRank);
    for (int i = thread(); i < queries.heads * kLatentRank / 8; i += 128) to[i] = make_uint4(0, 0, 0, 0);
  }
};

}  // namespace hone
