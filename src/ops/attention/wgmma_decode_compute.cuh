// The warpgroup of wgmma_decode.cuh that computes, and what it has in common with the two of FP8 pages.
#pragma once

#include "ops/attention/wgmma_decode_plan.cuh"

namespace hone {

// State and steps of the warpgroup that computes. A thread has the query rows column() and column() + 1; of S^T the
// keys 64 m + 8 (2 warp + h) + lane / 4, of O^T the columns value_column(part, h).
template <class Plan>
struct DecodeCompute {
  static constexpr int kWidth = Plan::kWidth;
  static constexpr int kParts = Plan::kParts;

  unsigned char* bytes;  // shared memory
  std::uint32_t shared;  // its address
  WeightBarriers barriers;
  float scale;  // of the scores, times log2(e)
  ForwardRing<Plan::kStages> ring;
  ForwardRing<Plan::kBuffers> buffers;
  float s[2][1][4];       // m; then 2 h + query row
  float o[kParts][1][4];  // part; then 2 h + query row
  float greatest[2];      // of the thread's query rows: maximum of the scores so far
  float sum;              // of sum_row(): this lane's part, the same in two lanes, of the sum of weights
  int position[2];        // of the thread's query rows in the sequence

  [[nodiscard]] __device__ static int thread() { return static_cast<int>(threadIdx.x) % Plan::kGroup; }
  [[nodiscard]] __device__ static int warp() { return thread() / 32; }
  [[nodiscard]] __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  [[nodiscard]] __device__ static int column() { return lane() % 4 * 2; }
  // The query row whose sum this lane helps to add, and the remainder modulo 8 of its keys.
  [[nodiscard]] __device__ static int sum_row() { return warp() * 2 + lane() / 8 % 2; }
  [[nodiscard]] __device__ static int sum_key() { return lane() % 8; }
  [[nodiscard]] __device__ static int value_column(int part, int h) {
    return part * 64 + warp() * 16 + (Plan::kFp8 ? lane() / 4 * 2 + h : 8 * h + lane() / 4);
  }
  [[nodiscard]] __device__ float* floats(int offset) const { return reinterpret_cast<float*>(bytes + offset); }
  [[nodiscard]] __device__ std::uint32_t stage(int place) const {
    return shared + static_cast<std::uint32_t>(Plan::kStage + place * Plan::kStageBytes);
  }
  // Waits for the warpgroup.
  __device__ static void meet() {
    if (!Plan::kFp8 || threadIdx.x < Plan::kGroup) {
      named_barrier_wait(1, Plan::kGroup);
    } else {
      named_barrier_wait(2, Plan::kGroup);
    }
  }
  // The offset of one of the buffers, of `size` bytes each.
  [[nodiscard]] __device__ int buffer(int offset, int size) const {
    return Plan::kOwnBuffers == 1 ? offset : offset + buffers.place * size;
  }
  // The same for what passes to the other warpgroup or block.
  [[nodiscard]] __device__ int passed(int offset, int size) const {
    return Plan::kPair ? offset + buffers.place * Plan::kMessageStride : buffer(offset, size);
  }
  [[nodiscard]] __device__ float* decays() const { return floats(passed(Plan::kDecays, Plan::kRows * 4)); }
  [[nodiscard]] __device__ float* weights() const {
    return floats(buffer(Plan::kWeights, kForwardKeys * Plan::kRows * 4));
  }
  [[nodiscard]] __device__ int rounded() const { return passed(Plan::kRounded, 2 * Plan::kQueryTile); }

  // Starts the scores of the keys in stage `keys` (kScores), and the products that add the values in stage `values`
  // (kValues).
  template <bool kScores, bool kValues>
  __device__ void start(int keys, int values) {
    const std::uint64_t q = warpgroup_operand(shared + Plan::kQuery, 16);
    const std::uint64_t p = warpgroup_operand(shared + static_cast<std::uint32_t>(rounded()), 16);
    const std::uint64_t k = warpgroup_operand(stage(keys), 16);
    const std::uint64_t v = warpgroup_operand(stage(values), Plan::kKeyTile);
    warpgroup_fence();
#pragma unroll
    for (int step = 0; step < kForwardKeys / 16; ++step) {
      const int within = step % 4 * 2;
      if (kScores && step < kWidth / 16) {
        const std::uint64_t of_q = q + step / 4 * (Plan::kQueryTile / 16) + within;
        const std::uint64_t of_k = k + step / 4 * (Plan::kKeyTile / 16) + within;
        warpgroup_multiply<Major::kK, Major::kK>(s[0], of_k, of_q, step > 0);
        warpgroup_multiply<Major::kK, Major::kK>(s[1], of_k + 64 * 128 / 16, of_q, step > 0);
      }
      if (kValues) {
        const std::uint64_t of_p = p + step / 4 * (Plan::kQueryTile / 16) + within;
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          warpgroup_multiply<Major::kMn, Major::kK>(o[part], v + part * (Plan::kKeyTile / 16) + step * (2048 / 16),
                                                    of_p, 1);
        }
      }
    }
    warpgroup_commit();
  }
  __device__ void wait() {
    warpgroup_wait<0>();
    settle(s[0]);
    settle(s[1]);
#pragma unroll
    for (int part = 0; part < kParts; ++part) settle(o[part]);
  }
  __device__ void release(int place) const {
    if (lane() == 0) barrier_arrive(barriers.free(place));
  }

  // Step 1: turns the scores of a tile into weights, and scales O to the new maximum.
  __device__ void online_softmax_step(int tile) {
    const int own_key = warp() * 16 + lane() / 4;
    float here[2] = {-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float& score = s[i / 4][0][i % 4];
      const int key = tile * kForwardKeys + i / 4 * 64 + own_key + i % 4 / 2 * 8;
      if (key > position[i % 2]) score = -std::numeric_limits<float>::infinity();
      here[i % 2] = fmaxf(here[i % 2], score);
    }
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      for (int distance = 4; distance < 32; distance *= 2) {
        here[e] = fmaxf(here[e], __shfl_xor_sync(0xFFFFFFFFu, here[e], distance));
      }
    }
    float* maxima = floats(buffer(Plan::kMaxima, Plan::kWarps * Plan::kRows * 4));
    if (lane() < 4) {
      maxima[warp() * 8 + column()] = here[0];
      maxima[warp() * 8 + column() + 1] = here[1];
    }
    meet();
    float decay[2];
    float offset[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float most = greatest[e];
      for (int w = 0; w < Plan::kWarps; ++w) most = fmaxf(most, maxima[w * 8 + column() + e]);
      // In a later split a row may have seen no key yet: then the weights are exp2(-infinity) = 0 and not NaN.
      const float base = most == -std::numeric_limits<float>::infinity() ? 0.0f : most;
      offset[e] = base * scale;
      decay[e] = exp2_fast((greatest[e] - base) * scale);  // 1 if the maximum stays
      greatest[e] = most;
    }
    if constexpr (Plan::kFp8 || Plan::kPair) barrier_wait(barriers.read(buffers.place), buffers.parity ^ 1);
    if (thread() < 4) *reinterpret_cast<float2*>(decays() + column()) = make_float2(decay[0], decay[1]);
    std::uint32_t both[4];
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const int key = i / 4 * 64 + own_key + i % 4 / 2 * 8;
      const float first = exp2_fast(__fmaf_rn(s[i / 4][0][i % 4], scale, -offset[0]));
      const float second = exp2_fast(__fmaf_rn(s[i / 4][0][i % 4 + 1], scale, -offset[1]));
      *reinterpret_cast<float2*>(weights() + key * 8 + column()) = make_float2(first, second);
      both[i / 2] = packed_bf16(first, second);
    }
    store_rounded(both);
    if constexpr (Plan::kFp8) {
      pass_buffer();
    } else if constexpr (Plan::kPair) {
      store_greatest();
    } else {
      decay_outputs(decay[0], decay[1]);
      fence_async_shared();
      meet();
    }
  }
  // Passes weights, decays and maxima to the warpgroup of values.
  __device__ void store_greatest() {
    if (thread() < 4) {
      float* to = floats(passed(Plan::kGreatest, Plan::kRows * 4)) + column();
      *reinterpret_cast<float2*>(to) = make_float2(greatest[0], greatest[1]);
    }
    fence_async_shared();
  }
  __device__ void pass_buffer() {
    store_greatest();
    __syncwarp();
    if (lane() == 0) barrier_arrive(barriers.filled(buffers.place));
    buffers.next();
  }
  __device__ void decay_outputs(float first, float second) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o[part][0][i] *= i % 2 == 0 ? first : second;
    }
  }
  // Stores four matrices of eight keys by eight query rows as rows of P.
  __device__ void store_rounded(const std::uint32_t (&weights)[4]) const {
    const int matrix = lane() / 8;
    const SharedRows<64> rows{shared + static_cast<std::uint32_t>(rounded() + matrix / 2 * Plan::kQueryTile)};
    store_matrices_transposed(rows.at(lane() % 8, 2 * warp() + matrix % 2), weights);
  }

  // Step 3: the sums of wgmma_forward.cuh, whose lane q of four adds the keys 2 q (even) and 2 q + 1 (odd) modulo 8.
  __device__ void add_weights() {
    const float* own = weights() + sum_key() * 8 + sum_row();
    float added = 0.0f;
#pragma unroll
    for (int n = 0; n < kForwardKeys / 8; ++n) added += own[n * 64];
    added += __shfl_xor_sync(0xFFFFFFFFu, added, 1);
    sum = __fmaf_rn(sum, decays()[sum_row()], added);
  }

  // Zeros the rows of a tile of values from `row` on, which were not copied: their weights are 0, and 0 times what was
  // there before could be NaN.
  __device__ void clear_values(int place, int row) const {
    const int own = static_cast<int>(threadIdx.x);
    if (own >= row) {
      for (int part = 0; part < kParts; ++part) {
        const std::uint32_t at = stage(place) + static_cast<std::uint32_t>(part * Plan::kKeyTile + own * 128);
#pragma unroll
        for (int i = 0; i < 8; ++i) store_zeros16(at + 16 * static_cast<std::uint32_t>(i));
      }
    }
    fence_async_shared();
    meet();
  }

  [[nodiscard]] __device__ int next_stage() {
    barrier_wait(barriers.ready(ring.place), ring.parity);
    const int place = ring.place;
    ring.next();
    return place;
  }
  __device__ void clear_outputs() {
    sum = 0.0f;
#pragma unroll
    for (int part = 0; part < kParts; ++part) o[part][0][0] = o[part][0][1] = o[part][0][2] = o[part][0][3] = 0.0f;
  }
  __device__ void reduce_sums() {
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 4);
    if (lane() < 16 && sum_key() == 0) floats(Plan::kTotals)[sum_row()] = sum;
    meet();
  }
  // Computes the `count` tiles of keys of a split, from tile `first` on. `keys`: those up to the last one of the part.
  // `ends`: the queries may be overwritten after the last scores.
  __device__ void split(int first, int count, int keys, bool ends) {
    greatest[0] = greatest[1] = -std::numeric_limits<float>::infinity();
    clear_outputs();
    int of_keys = next_stage();
    start<true, false>(of_keys, 0);
    wait();
    release(of_keys);
    for (int i = 0; i + 1 < count; ++i) {
      online_softmax_step(first + i);
      of_keys = next_stage();
      const int of_values = next_stage();
      start<true, true>(of_keys, of_values);
      add_weights();
      wait();
      release(of_keys);
      release(of_values);
    }
    if (ends && lane() == 0) barrier_arrive(barriers.q_free());
    // The last tile.
    online_softmax_step(first + count - 1);
    const int of_values = next_stage();
    const int last_keys = keys - (first + count - 1) * kForwardKeys;
    if (last_keys < kForwardKeys) clear_values(of_values, last_keys);
    start<false, true>(0, of_values);
    add_weights();
    wait();
    release(of_values);
    reduce_sums();
  }
  // Writes o and lse of the part's rows.
  template <class HeadRow>
  __device__ void write(const TileQueries<__nv_bfloat16>& queries, int rows, const HeadRow& head_row) const {
    auto* out = reinterpret_cast<std::uint16_t*>(bytes + Plan::kOut);  // bf16 [8, head_dim]
    const float* totals = floats(Plan::kTotals);
    const float factor[2] = {1.0f / totals[column()], 1.0f / totals[column() + 1]};
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int at = value_column(part, h);
        const std::uint32_t both = packed_bf16(o[part][0][2 * h] * factor[0], o[part][0][2 * h + 1] * factor[1]);
        out[column() * kWidth + at] = static_cast<std::uint16_t>(both);
        out[(column() + 1) * kWidth + at] = static_cast<std::uint16_t>(both >> 16);
      }
    }
    if (thread() < 4) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (column() + e >= rows) continue;
        queries.lse[head_row(column() + e)] = __fmaf_rn(greatest[e], queries.scale, logf(totals[column() + e]));
      }
    }
    meet();
    const int row = thread() / (kWidth / 8);
    const int chunk = thread() % (kWidth / 8);
    if (row < rows && row < Plan::kRows) {
      reinterpret_cast<uint4*>(queries.o + head_row(row) * kWidth)[chunk] =
          reinterpret_cast<const uint4*>(out)[row * (kWidth / 8) + chunk];
    }
    meet();
  }

  // Stores the results of a split in the layout of ForwardSplits; to(row) is where a row's are.
  template <class To>
  __device__ void store_split(int rows, const To& to) const {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      if (column() + e >= rows) continue;
      float* at = to(column() + e);
      if (thread() < 4) {
        at[kWidth] = greatest[e];
        at[kWidth + 1] = floats(Plan::kTotals)[column() + e];
      }
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int h = 0; h < 2; ++h) at[value_column(part, h)] = o[part][0][2 * h + e];
      }
    }
    meet();
  }
};

}  // namespace hone
