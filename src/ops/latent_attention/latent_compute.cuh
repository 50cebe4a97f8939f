// The two warpgroups of wgmma_latent.cuh that compute.
#pragma once

#include "ops/attention/wgmma_forward_rows.cuh"
#include "ops/latent_attention/latent_copy.cuh"

namespace hone {

inline constexpr int kLatentRows = 64;  // query rows of an item: tokens x heads

// Offsets in shared memory, in bytes. Queries are tiles of 64 columns: 64 rows of 128 bytes, swizzled.
struct LatentShared {
  static constexpr int kQueries = 1;  // items whose queries are there
  static constexpr int kStages = 2;   // tiles of keys
  static constexpr int kQueryPart = kLatentRows * 128;
  static constexpr int kQueryBytes = kLatentParts * kQueryPart;
  static constexpr int kQuery = 0;
  static constexpr int kStage = kQueryBytes;
  static constexpr int kWeights = kStage + kStages * kLatentTileBytes;  // bf16 P [64, 64]
  static constexpr int kDecays = kWeights + kQueryPart;                 // f32 [64]
  static constexpr int kGreatest = kDecays + kLatentRows * 4;           // f32 [64]
  static constexpr int kSums = kGreatest + kLatentRows * 4;             // f32 [64]
  static constexpr int kBarriers = kSums + kLatentRows * 4;
  static constexpr int kItems = kBarriers + LatentBarriers::kBytes;  // two slots
  static constexpr int kBytes = kItems + 2 * static_cast<int>(sizeof(LatentItem));
  static constexpr int kConsumers = 256;  // threads that compute: two warpgroups
  static constexpr int kThreads = kConsumers + 128;
  static constexpr int kRegisters = 224;  // of a thread that computes
  static constexpr int kCopyRegisters = 56;
};
static_assert(LatentShared::kBytes <= 232448);
// The block has the registers that it is launched with, 168 for each thread: setmaxnreg waits forever for more.
static_assert(2 * LatentShared::kRegisters + LatentShared::kCopyRegisters <= 3 * 168);

using LatentScores = float[kLatentKeys / 8][4];

// State and steps that both warpgroups share. A thread has rows 16 warp + lane / 4 + 8 half of the item, for half 0 and
// 1, and of the output the columns 256 group + 8 n + lane % 4 * 2 and the next.
struct LatentCompute {
  static constexpr int kHalf = kLatentRank / 2;
  unsigned char* bytes;  // shared memory
  std::uint32_t shared;  // its address
  LatentBarriers barriers;
  int group;  // warpgroup
  ForwardRing<LatentShared::kStages> ring;
  ForwardRows<kHalf> rows;

  [[nodiscard]] __device__ static int thread() { return static_cast<int>(threadIdx.x) % 128; }
  [[nodiscard]] __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  [[nodiscard]] __device__ static int own_row(int half) { return thread() / 32 * 16 + lane() / 4 + 8 * half; }
  [[nodiscard]] __device__ float* floats(int offset) const { return reinterpret_cast<float*>(bytes + offset); }
  // The address of a stage; all lanes call it. The exchange tells the compiler that it is the same in all lanes, so
  // that descriptors are computed in uniform registers and not moved there before each wgmma.
  [[nodiscard]] __device__ std::uint32_t stage(int place) const {
    place = __shfl_sync(0xFFFFFFFFu, place, 0);
    return shared + static_cast<std::uint32_t>(LatentShared::kStage + place * kLatentTileBytes);
  }
  __device__ void release(int place) const {
    if (lane() == 0) barrier_arrive(barriers.free(place));
  }
  __device__ void scale_output() {
    if (__any_sync(0xFFFFFFFFu, rows.decay[0] != 1.0f || rows.decay[1] != 1.0f)) rows.decay_outputs();
    settle(rows.o);
  }
  // Starts to add P times the group's half of the values in a stage.
  __device__ void start_values(int place) {
    const std::uint64_t p = warpgroup_operand(shared + static_cast<std::uint32_t>(LatentShared::kWeights), 16);
    const std::uint64_t v = latent_operand(stage(place) + static_cast<std::uint32_t>(group * 4 * kLatentPartBytes));
    warpgroup_fence();
#pragma unroll
    for (int step = 0; step < kLatentKeys / 16; ++step) {
      warpgroup_multiply<Major::kK, Major::kMn>(rows.o, p + step * 2, v + step * (2 * kLatentBoxBytes / 16), 1);
    }
    warpgroup_commit();
  }

  // The row of (token, head) of one of the item's rows; -1 if it does not exist.
  [[nodiscard]] __device__ static std::int64_t head_row(const LatentQueries& queries, const LatentItem& item, int row) {
    const int token = row / queries.item_heads;
    const int head = item.head + row % queries.item_heads;
    if (token >= item.tokens || head >= queries.heads) return -1;
    return static_cast<std::int64_t>(item.row + token) * queries.heads + head;
  }

  // Ends a split: stores its sums, or merges them with those of the splits before, and writes the output after the last
  // one. `last`: no split of the item follows in this block.
  __device__ void end_split(const LatentQueries& queries, const LatentItem& item, int split, bool last) {
    std::int64_t at[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) at[half] = head_row(queries, item, own_row(half));
    if (queries.splits.per_row > 1) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (at[half] < 0) continue;
        float* to = queries.splits.at(at[half], split, kLatentRank);
        rows.store_output(to + group * kHalf, half);
        if (group == 0) rows.store_totals(to + kLatentRank, half);
      }
      return;
    }
    float4* kept = queries.kept + (static_cast<std::int64_t>(blockIdx.x) * 2 + group) * LatentQueries::kKept;
    float4* kept_rows = kept + 32 * 128 + thread() / 4;
    if (split > 0) rows.merge(kept + thread(), 128, kept_rows, queries.scale * kLog2e);
    if (!last) {
      rows.store(kept + thread(), 128, kept_rows);
      return;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.template write<kHalf>(at[half] < 0 ? nullptr : queries.o + at[half] * kLatentRank + group * kHalf, half);
    }
  }
  // Zeros the group's half of the output of rows outside all sequences.
  __device__ void write_zeros(const LatentQueries& queries, const LatentItem& item) const {
    constexpr int kChunks = kHalf / 8;
    for (int i = thread(); i < kLatentRows * kChunks; i += 128) {
      const std::int64_t at = head_row(queries, item, i / kChunks);
      if (at < 0) continue;
      reinterpret_cast<uint4*>(queries.o + at * kLatentRank + group * kHalf)[i % kChunks] = make_uint4(0, 0, 0, 0);
    }
  }
};

// Named barriers: P and its decays are in shared memory; P has been read; the totals of a split are in shared memory;
// warpgroup 0 alone.
inline constexpr int kLatentPassed = 1;
inline constexpr int kLatentRead = 2;
inline constexpr int kLatentTotals = 3;
inline constexpr int kLatentWritten = 4;

// Warpgroup 0.
struct LatentLead : LatentCompute {
  float scale;  // of the scores, times log2(e)
  int position[2];

  __device__ void start_scores(LatentScores& s, int place) const {
    const std::uint64_t q = warpgroup_operand(shared + LatentShared::kQuery, 16);
    const std::uint64_t k = latent_operand(stage(place));
    warpgroup_fence();
#pragma unroll
    for (int step = 0; step < kLatentWidth / 16; ++step) {
      warpgroup_multiply<Major::kK, Major::kK>(s, q + step / 4 * (LatentShared::kQueryPart / 16) + step % 4 * 2,
                                               k + step / 4 * (kLatentPartBytes / 16) + step % 4 * 2, step > 0);
    }
    warpgroup_commit();
  }
  // Step 1: turns the scores of a tile into weights, and updates maximum, sum and decay.
  template <class Between>
  __device__ void online_softmax_step(LatentScores& s, int tile, const Between& between) {
    if ((tile + 1) * kLatentKeys - 1 > position[0]) mask_scores(s, tile * kLatentKeys, position);
    rows.online_softmax_step(s, scale, between);
  }
  // Step 2. Of the sequence's last tile, rows of values from `keys` on are zeroed: their weights are 0, and 0 times
  // what is there could be NaN. Returns true to all warps if each sees that the keys of the next stage are there: PTX
  // requires that all warps of a warpgroup take the same way to wgmma.wait_group.
  [[nodiscard]] __device__ bool pass_weights(const LatentScores& s, int place, int keys) {
    named_barrier_wait(kLatentRead, LatentShared::kConsumers);
    // Chunk n of row r is at n ^ r % 8, and a thread's rows have the same remainder: addresses differ in these bits
    // only.
    const SharedRows<64> to{shared + static_cast<std::uint32_t>(LatentShared::kWeights)};
    const std::uint32_t chunk0 = to.at(own_row(0), 0) + static_cast<std::uint32_t>(lane() % 4) * 4;
#pragma unroll
    for (int n = 0; n < kLatentKeys / 8; ++n) {
      const std::uint32_t at = chunk0 ^ static_cast<std::uint32_t>(n * 16);
      asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(at), "r"(packed_bf16(s[n][0], s[n][1])) : "memory");
      asm volatile("st.shared.b32 [%0+1024], %1;\n" ::"r"(at), "r"(packed_bf16(s[n][2], s[n][3])) : "memory");
    }
    if (lane() % 4 == 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) floats(LatentShared::kDecays)[own_row(half)] = rows.decay[half];
    }
    if (keys < kLatentKeys) zero_latent_values(stage(place), keys);
    fence_async_shared();
    const bool next_ready =
        named_barrier_all(kLatentWritten, 128, barrier_ended(barriers.ready(ring.place), ring.parity));
    named_barrier_arrive(kLatentPassed, LatentShared::kConsumers);
    return next_ready;
  }

  // Computes tiles [first, first + count) of the item. `ends`: these are its last.
  __device__ void split(const LatentItem& item, int first, int count, bool ends) {
    LatentScores s;
    rows.clear();
    barrier_wait(barriers.ready(ring.place), ring.parity);
    start_scores(s, ring.place);
    warpgroup_wait<0>();
    settle(s);
    online_softmax_step(s, first, [] {});
    for (int i = 0;; ++i) {
      const int place = ring.place;
      ring.next();
      const bool next_ready = pass_weights(s, place, min(kLatentKeys, item.keys - (first + i) * kLatentKeys));
      const bool more = i + 1 < count;
      if (ends && !more && lane() == 0) barrier_arrive(barriers.q_free(0));
      scale_output();
      const auto finish_values = [&] {
        warpgroup_wait<0>();
        settle(rows.o);
        release(place);
      };
      if (more && next_ready) {
        barrier_wait(barriers.ready(ring.place), ring.parity);
        start_scores(s, ring.place);
        start_values(place);
        warpgroup_wait<1>();
        settle(s);
        online_softmax_step(s, first + i + 1, finish_values);
        continue;
      }
      start_values(place);
      finish_values();
      if (!more) break;
      barrier_wait(barriers.ready(ring.place), ring.parity);
      start_scores(s, ring.place);
      warpgroup_wait<0>();
      settle(s);
      online_softmax_step(s, first + i + 1, [] {});
    }
    rows.reduce_sums();
    if (lane() % 4 == 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        floats(LatentShared::kGreatest)[own_row(half)] = rows.greatest[half];
        floats(LatentShared::kSums)[own_row(half)] = rows.sum[half];
      }
    }
    named_barrier_wait(kLatentTotals, LatentShared::kConsumers);
  }
};

// Warpgroup 1.
struct LatentFollow : LatentCompute {
  // `count` tiles. P is free again once the totals of the split have been read, too.
  __device__ void split(int count) {
    rows.clear();
    for (int i = 0; i < count; ++i) {
      named_barrier_wait(kLatentPassed, LatentShared::kConsumers);
      barrier_wait(barriers.ready(ring.place), ring.parity);
#pragma unroll
      for (int half = 0; half < 2; ++half) rows.decay[half] = floats(LatentShared::kDecays)[own_row(half)];
      scale_output();
      start_values(ring.place);
      warpgroup_wait<0>();
      settle(rows.o);
      release(ring.place);
      ring.next();
      if (i + 1 < count) named_barrier_arrive(kLatentRead, LatentShared::kConsumers);
    }
    named_barrier_wait(kLatentTotals, LatentShared::kConsumers);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.greatest[half] = floats(LatentShared::kGreatest)[own_row(half)];
      rows.sum[half] = floats(LatentShared::kSums)[own_row(half)];
    }
    named_barrier_arrive(kLatentRead, LatentShared::kConsumers);
  }
};

}  // namespace hone
