// Sizes of a block of wgmma_decode.cuh, and the warpgroup that computes.
#pragma once

#include "ops/attention/wgmma_decode_widen.cuh"
#include "ops/attention/wgmma_forward.cuh"

namespace hone {

// The barriers of the buffers of weights, where two warpgroups compute.
struct WeightBarriers : ForwardBarriers {
  [[nodiscard]] __device__ std::uint32_t filled(int buffer) const { return at(18 + buffer); }
  [[nodiscard]] __device__ std::uint32_t read(int buffer) const { return at(20 + buffer); }
};

// Sizes of a block; with kDeep one fits an SM and copies further ahead, otherwise kBlocks. With kFp8 a stage holds the
// bytes of a tile of FP8 pages and their scales.
template <int kHeadDim, bool kDeep, bool kFp8Pages = false>
struct WgmmaDecode {
  static constexpr bool kFp8 = kFp8Pages;
  static constexpr int kWidth = kHeadDim;
  static constexpr int kRows = 8;       // query rows of a part
  static constexpr int kItemRows = 64;  // query rows of an item
  static constexpr int kParts = kWidth / 64;
  static constexpr int kGroup = 128;  // threads of a warpgroup
  static constexpr int kWarps = kGroup / 32;
  static constexpr int kConsumers = kFp8 ? 2 * kGroup : kGroup;  // threads that compute
  static constexpr int kThreads = kConsumers + (kFp8 ? kGroup : 32);
  static constexpr bool kMovesRegisters = kFp8 && !kDeep;
  static constexpr int kCopyRegisters = 56;
  static constexpr int kRegisters = 88;
  static constexpr int kBlocks = kDeep ? 1 : 2;             // of an SM, at least
  static constexpr int kStages = kDeep ? 6 : kFp8 ? 5 : 3;  // of one tile of keys or values each
  static constexpr int kBuffers = kFp8 ? 2 : 1;             // of weights, maxima and decays
  // Bytes of tiles of 64 columns.
  static constexpr int kQueryTile = kRows * 128;
  static constexpr int kKeyTile = kForwardKeys * 128;
  static constexpr int kStageBytes = kFp8 ? kForwardKeys * kWidth : kParts * kKeyTile;
  // Keys and values share the stages (ForwardCopy).
  static constexpr bool kSeparate = false;
  static constexpr int kValues = kWidth;
  static constexpr int kKeyStages = kStages;
  static constexpr int kValueStages = 0;
  static constexpr int kKeyBytes = kStageBytes;
  static constexpr int kValueBytes = kStageBytes;
  // Offsets in shared memory, in bytes.
  static constexpr int kQuery = 0;
  static constexpr int kRounded = kQuery + kParts * kQueryTile;  // bf16 P [8, 128], in two tiles of 64 keys
  static constexpr int kStage = (kRounded + kBuffers * 2 * kQueryTile + 1023) / 1024 * 1024;
  static constexpr int kScales = kStage + kStages * kStageBytes;                  // of a stage: u8 [128]
  static constexpr int kWeights = kScales + (kFp8 ? kStages * kForwardKeys : 0);  // f32 P^T [128, 8]
  static constexpr int kMaxima = kWeights + kBuffers * kForwardKeys * kRows * 4;  // f32 [warps, 8]
  static constexpr int kDecays = kMaxima + kBuffers * kWarps * kRows * 4;         // f32 [8]
  static constexpr int kGreatest = kDecays + kBuffers * kRows * 4;                // f32 [8]
  static constexpr int kTotals = kGreatest + kBuffers * kRows * 4;                // f32 [8]
  static constexpr int kOut = kFp8 ? kTotals + kRows * 4 : kWeights;              // bf16 [8, head_dim]
  static constexpr int kBarriers = kTotals + kRows * 4 + (kFp8 ? kRows * kWidth * 2 : 0);
  static constexpr int kItems = kBarriers + 192;  // two slots for items
  static constexpr int kSharedBytes = kItems + 64;
  [[nodiscard]] __device__ static int stage_at(int place) { return kStage + place * kStageBytes; }
  [[nodiscard]] __device__ static int scales_at(int place) { return kScales + place * kForwardKeys; }
};

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
    return Plan::kBuffers == 1 ? offset : offset + buffers.place * size;
  }
  [[nodiscard]] __device__ float* decays() const { return floats(buffer(Plan::kDecays, Plan::kRows * 4)); }
  [[nodiscard]] __device__ float* weights() const {
    return floats(buffer(Plan::kWeights, kForwardKeys * Plan::kRows * 4));
  }
  [[nodiscard]] __device__ int rounded() const { return buffer(Plan::kRounded, 2 * Plan::kQueryTile); }

  // Starts the scores of the keys in stage `keys` (kScores), and the products that add the values in stage `values`
  // (kValues).
  template <bool kScores, bool kValues>
  __device__ void start(int keys, int values) {
    const std::uint64_t q = warpgroup_operand(shared + Plan::kQuery, 16);
    const std::uint64_t p = warpgroup_operand(shared + Plan::kRounded, 16);
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
  // The same for FP8 pages: rows of A are widened in registers, four steps of 16 at a time, while the products of the
  // four before run. The bytes of a stage are free as soon as they have been loaded.
  using Widened = WidenedRows[2];
  __device__ void multiply_widened(float (&c)[1][4], WidenedRows& a, std::uint64_t b, bool keep) {
    settle(a);
    warpgroup_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) warpgroup_multiply<Major::kK>(c, a[step], b + step * 2, keep || step > 0);
    warpgroup_commit();
    warpgroup_wait<1>();
  }
  // Computes the scores of the keys in the next stage. Their scales are powers of two, which multiply the sums as they
  // would multiply each term.
  __device__ void scores_of_bytes() {
    const int place = next_stage();
    const Fp8Tile<Plan> tile{stage(place), shared + static_cast<std::uint32_t>(Plan::scales_at(place))};
    const std::uint64_t q = warpgroup_operand(shared + Plan::kQuery, 16);
    Widened a;
    float scales[2][2];
    typename Fp8Tile<Plan>::KeyWords words[2];
#pragma unroll
    for (int m = 0; m < 2; ++m) tile.load_keys(words[m], scales[m], m);
    release(place);
    settle(s[0]);
    settle(s[1]);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        WidenedRows& rows = a[(m * kParts + part) % 2];
        tile.widen_keys(rows, words[m], part);
        multiply_widened(s[m], rows, q + part * (Plan::kQueryTile / 16), part > 0);
      }
    }
    warpgroup_wait<0>();
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      settle(s[m]);
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][0][i] *= scales[m][i / 2];
    }
  }
  // Adds the values in the next stage, with the next weights; kLast: only those of the first `count` keys.
  template <bool kLast>
  __device__ void add_values_of_bytes(int count) {
    const int place = next_stage();
    const Fp8Tile<Plan> tile{stage(place), shared + static_cast<std::uint32_t>(Plan::scales_at(place))};
    // The shuffle tells the compiler that all lanes have one address, so that it keeps descriptors in uniform
    // registers.
    const std::uint32_t of_weights = __shfl_sync(0xFFFFFFFFu, shared + static_cast<std::uint32_t>(rounded()), 0);
    const std::uint64_t p = warpgroup_operand(of_weights, 16);
    Widened a;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t factors[kForwardKeys / 16];
      tile.template value_factors<kLast>(factors, half, count);
      typename Fp8Tile<Plan>::ValueWords words[kParts];
#pragma unroll
      for (int part = 0; part < kParts; ++part) tile.load_values(words[part], part, half);
      if (half == 1) release(place);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        WidenedRows& rows = a[(half * kParts + part) % 2];
        tile.widen_values(rows, words[part], factors);
        if (half == 0 && part == 0) {
          barrier_wait(barriers.filled(buffers.place), buffers.parity);
          decay_outputs(decays()[column()], decays()[column() + 1]);
#pragma unroll
          for (int each = 0; each < kParts; ++each) settle(o[each]);
        }
        multiply_widened(o[part], rows, p + half * (Plan::kQueryTile / 16), true);
      }
    }
    add_weights();
    warpgroup_wait<0>();
#pragma unroll
    for (int part = 0; part < kParts; ++part) settle(o[part]);
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
    if constexpr (Plan::kFp8) wait_for_buffer();
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
    } else {
      decay_outputs(decay[0], decay[1]);
      fence_async_shared();
      meet();
    }
  }
  // Buffers of weights, decays and maxima pass from the warpgroup of scores to that of values.
  __device__ void wait_for_buffer() { barrier_wait(barriers.read(buffers.place), buffers.parity ^ 1); }
  __device__ void pass_buffer() {
    if (thread() < 4) {
      float* to = floats(buffer(Plan::kGreatest, Plan::kRows * 4)) + column();
      *reinterpret_cast<float2*>(to) = make_float2(greatest[0], greatest[1]);
    }
    fence_async_shared();
    __syncwarp();
    if (lane() == 0) barrier_arrive(barriers.filled(buffers.place));
    buffers.next();
  }
  __device__ void free_buffer() {
    __syncwarp();
    if (lane() == 0) barrier_arrive(barriers.read(buffers.place));
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

  // Brings the columns of the queries to the order of Fp8Tile::keys().
  __device__ void order_queries() const {
    const int step = thread() / Plan::kRows;
    if (step < kWidth / 16) {
      const SharedRows<64> rows{static_cast<std::uint32_t>(Plan::kQuery + step / 4 * Plan::kQueryTile)};
      auto& first = *reinterpret_cast<uint4*>(bytes + rows.at(thread() % Plan::kRows, step % 4 * 2));
      auto& second = *reinterpret_cast<uint4*>(bytes + rows.at(thread() % Plan::kRows, step % 4 * 2 + 1));
      const uint4 a = first;
      const uint4 b = second;
      first = make_uint4(a.x, a.z, b.x, b.z);
      second = make_uint4(a.y, a.w, b.y, b.w);
    }
    fence_async_shared();
    meet();
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
  // The same of FP8 pages by two warpgroups, of which each passes over the stages of the other.
  __device__ void score_split(int first, int count, bool ends) {
    greatest[0] = greatest[1] = -std::numeric_limits<float>::infinity();
    for (int i = 0; i < count; ++i) {
      scores_of_bytes();
      if (i > 0) ring.next();
      if (ends && i + 1 == count && lane() == 0) barrier_arrive(barriers.q_free());
      online_softmax_step(first + i);
    }
    ring.next();
  }
  __device__ void value_split(int first, int count, int keys) {
    clear_outputs();
    ring.next();
    for (int i = 0; i + 1 < count; ++i) {
      ring.next();
      add_values_of_bytes<false>(kForwardKeys);
      free_buffer();
    }
    add_values_of_bytes<true>(keys - (first + count - 1) * kForwardKeys);
    const float* most = floats(buffer(Plan::kGreatest, Plan::kRows * 4)) + column();
    greatest[0] = most[0];
    greatest[1] = most[1];
    free_buffer();
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
