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
#pragma once

#include "ops/attention/wgmma_forward.cuh"
#include "ops/attention/wgmma_forward_copy.cuh"

namespace hone {

// Sizes of a block; with kDeep one fits an SM and copies further ahead, otherwise two.
template <int kHeadDim, bool kDeep>
struct WgmmaDecode {
  static constexpr int kWidth = kHeadDim;
  static constexpr int kRows = 8;       // query rows of a part
  static constexpr int kItemRows = 64;  // query rows of an item
  static constexpr int kParts = kWidth / 64;
  static constexpr int kConsumers = 128;  // threads that compute
  static constexpr int kWarps = kConsumers / 32;
  static constexpr int kThreads = kConsumers + 32;
  static constexpr int kBlocks = kDeep ? 1 : 2;  // of an SM, at least
  static constexpr int kStages = kDeep ? 6 : 3;  // of one tile of keys or values each
  // Bytes of tiles of 64 columns.
  static constexpr int kQueryTile = kRows * 128;
  static constexpr int kKeyTile = kForwardKeys * 128;
  static constexpr int kStageBytes = kParts * kKeyTile;
  // Offsets in shared memory, in bytes.
  static constexpr int kQuery = 0;
  static constexpr int kRounded = kQuery + kParts * kQueryTile;  // bf16 P [8, 128], in two tiles of 64 keys
  static constexpr int kStage = (kRounded + 2 * kQueryTile + 1023) / 1024 * 1024;
  static constexpr int kWeights = kStage + kStages * kStageBytes;      // f32 P^T [128, 8]
  static constexpr int kMaxima = kWeights + kForwardKeys * kRows * 4;  // f32 [warps, 8]
  static constexpr int kDecays = kMaxima + kWarps * kRows * 4;         // f32 [8]
  static constexpr int kTotals = kDecays + kRows * 4;                  // f32 [8]
  static constexpr int kBarriers = kTotals + kRows * 4;
  static constexpr int kItems = kBarriers + 192;  // two slots for items
  static constexpr int kSharedBytes = kItems + 64;
};

// State and steps of the warpgroup that computes. A thread has the query rows column() and column() + 1; of S^T the
// keys 64 m + 8 (2 warp + h) + lane / 4, of O^T the columns 64 part + 8 (2 warp + h) + lane / 4.
template <class Plan>
struct DecodeCompute {
  static constexpr int kWidth = Plan::kWidth;
  static constexpr int kParts = Plan::kParts;

  unsigned char* bytes;  // shared memory
  std::uint32_t shared;  // its address
  ForwardBarriers barriers;
  float scale;  // of the scores, times log2(e)
  ForwardRing<Plan::kStages> ring;
  float s[2][1][4];       // m; then 2 h + query row
  float o[kParts][1][4];  // part; then 2 h + query row
  float greatest[2];      // of the thread's query rows: maximum of the scores so far
  float sum;              // of sum_row(): this lane's part, the same in two lanes, of the sum of weights
  int position[2];        // of the thread's query rows in the sequence

  [[nodiscard]] __device__ static int warp() { return static_cast<int>(threadIdx.x) / 32; }
  [[nodiscard]] __device__ static int lane() { return static_cast<int>(threadIdx.x) % 32; }
  [[nodiscard]] __device__ static int column() { return lane() % 4 * 2; }
  // The query row whose sum this lane helps to add, and the remainder modulo 8 of its keys.
  [[nodiscard]] __device__ static int sum_row() { return warp() * 2 + lane() / 8 % 2; }
  [[nodiscard]] __device__ static int sum_key() { return lane() % 8; }
  [[nodiscard]] __device__ float* floats(int offset) const { return reinterpret_cast<float*>(bytes + offset); }
  [[nodiscard]] __device__ std::uint32_t stage(int place) const {
    return shared + static_cast<std::uint32_t>(Plan::kStage + place * Plan::kStageBytes);
  }
  __device__ static void meet() { named_barrier_wait(1, Plan::kConsumers); }

  // Starts the scores of the keys in stage `keys` and adds the values in stage `values`, each if it is not negative.
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
        warpgroup_multiply<Major::k, Major::k>(s[0], of_k, of_q, step > 0);
        warpgroup_multiply<Major::k, Major::k>(s[1], of_k + 64 * 128 / 16, of_q, step > 0);
      }
      if (kValues) {
        const std::uint64_t of_p = p + step / 4 * (Plan::kQueryTile / 16) + within;
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          warpgroup_multiply<Major::mn, Major::k>(o[part], v + part * (Plan::kKeyTile / 16) + step * (2048 / 16), of_p,
                                                  1);
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
    float* maxima = floats(Plan::kMaxima);
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
    if (threadIdx.x < 4) *reinterpret_cast<float2*>(floats(Plan::kDecays) + column()) = make_float2(decay[0], decay[1]);
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const int key = i / 4 * 64 + own_key + i % 4 / 2 * 8;
      const float first = exp2_fast(__fmaf_rn(s[i / 4][0][i % 4], scale, -offset[0]));
      const float second = exp2_fast(__fmaf_rn(s[i / 4][0][i % 4 + 1], scale, -offset[1]));
      *reinterpret_cast<float2*>(floats(Plan::kWeights) + key * 8 + column()) = make_float2(first, second);
      const std::uint32_t both = packed_bf16(first, second);
      store_rounded(column(), key, static_cast<std::uint16_t>(both));
      store_rounded(column() + 1, key, static_cast<std::uint16_t>(both >> 16));
    }
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o[part][0][i] *= decay[i % 2];
    }
    fence_async_shared();
    meet();
  }
  __device__ void store_rounded(int row, int key, std::uint16_t weight) const {
    const SharedRows<64> rows{static_cast<std::uint32_t>(Plan::kRounded + key / 64 * Plan::kQueryTile)};
    *reinterpret_cast<std::uint16_t*>(bytes + rows.at(row, key % 64 / 8) + key % 8 * 2) = weight;
  }

  // Step 3: the sums of wgmma_forward.cuh, whose lane q of four adds the keys 2 q (even) and 2 q + 1 (odd) modulo 8.
  __device__ void add_weights() {
    const float* weights = floats(Plan::kWeights) + sum_key() * 8 + sum_row();
    float added = 0.0f;
#pragma unroll
    for (int n = 0; n < kForwardKeys / 8; ++n) added += weights[n * 64];
    added += __shfl_xor_sync(0xFFFFFFFFu, added, 1);
    sum = __fmaf_rn(sum, floats(Plan::kDecays)[sum_row()], added);
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
  // Computes the `count` tiles of keys of a split, from tile `first` on. `keys`: those up to the last one of the part.
  // `ends`: the queries may be overwritten after the last scores.
  __device__ void split(int first, int count, int keys, bool ends) {
    greatest[0] = greatest[1] = -std::numeric_limits<float>::infinity();
    sum = 0.0f;
#pragma unroll
    for (int part = 0; part < kParts; ++part) o[part][0][0] = o[part][0][1] = o[part][0][2] = o[part][0][3] = 0.0f;
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
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 4);
    if (lane() < 16 && sum_key() == 0) floats(Plan::kTotals)[sum_row()] = sum;
    meet();
  }

  // Writes o and lse of the part's rows.
  template <class HeadRow>
  __device__ void write(const TileQueries<__nv_bfloat16>& queries, int rows, const HeadRow& head_row) const {
    auto* out = reinterpret_cast<std::uint16_t*>(bytes + Plan::kWeights);  // bf16 [8, head_dim]
    const float* totals = floats(Plan::kTotals);
    const float factor[2] = {1.0f / totals[column()], 1.0f / totals[column() + 1]};
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int at = part * 64 + warp() * 16 + 8 * h + lane() / 4;
        const std::uint32_t both = packed_bf16(o[part][0][2 * h] * factor[0], o[part][0][2 * h + 1] * factor[1]);
        out[column() * kWidth + at] = static_cast<std::uint16_t>(both);
        out[(column() + 1) * kWidth + at] = static_cast<std::uint16_t>(both >> 16);
      }
    }
    if (threadIdx.x < 4) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if (column() + e >= rows) continue;
        queries.lse[head_row(column() + e)] = __fmaf_rn(greatest[e], queries.scale, logf(totals[column() + e]));
      }
    }
    meet();
    const int row = static_cast<int>(threadIdx.x) / (kWidth / 8);
    const int chunk = static_cast<int>(threadIdx.x) % (kWidth / 8);
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
      if (threadIdx.x < 4) {
        at[kWidth] = greatest[e];
        at[kWidth + 1] = floats(Plan::kTotals)[column() + e];
      }
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int h = 0; h < 2; ++h) at[part * 64 + warp() * 16 + 8 * h + lane() / 4] = o[part][0][2 * h + e];
      }
    }
    meet();
  }
};

// The part of an item that begins with its token `first`.
[[nodiscard]] __device__ inline AttentionItem part_of(const AttentionItem& item, int first, int part_tokens) {
  AttentionItem part = item;
  part.row += first;
  part.position += first;
  part.tokens = min(part_tokens, item.tokens - first);
  part.work = part.position + part.tokens;
  return part;
}

// The side that copies: finds the block's items, passes them on, and copies their queries, keys and values.
template <class Plan, class Keys>
struct DecodeCopy {
  ForwardCopy<Plan, Keys> copy;
  AttentionItem* slots;
  ForwardSplits splits;
  bool early;           // as in the kernel
  bool waited = false;  // for the kernels before
  int parity = 0;       // of the next queries
  ForwardRing<2> filled;

  // Passes an item to the warps that compute.
  __device__ void pass(const AttentionItem& item) {
    barrier_wait(copy.barriers.item_free(filled.place), filled.parity ^ 1);
    if (copy.lane() == 0) {
      slots[filled.place] = item;
      barrier_arrive(copy.barriers.item_ready(filled.place));
    }
    __syncwarp();
    filled.next();
  }
  __device__ void wait() {
    if (!waited) wait_for_prior_kernels();
    waited = true;
  }
  // Copies the splits `turns` of an item. The first tiles go ahead of the queries, which overwrite those of the item
  // before, and `old_tiles` of them, whose keys earlier runs wrote, of the kernels before.
  __device__ void item(const AttentionItem& item, const ForwardTurns& turns, int part_tokens, int old_tiles) {
    for (int first = 0; first < item.tokens; first += part_tokens) {
      const AttentionItem part = part_of(item, first, part_tokens);
      const int tiles = (part.work + kForwardKeys - 1) / kForwardKeys;
      if (turns.first * kSplitTiles >= tiles) continue;
      int ahead = 0;
      bool asked = false;
      const auto ask = [&] {
        asked = true;
        wait();
        if (copy.lane() == 0) copy.queries(part, parity);
      };
      const auto before = [&](int tile) {
        if (!asked && (ahead++ == Plan::kStages - 1 || (!waited && tile >= old_tiles))) ask();
      };
      for (int at = turns.first * kSplitTiles; at < tiles; at += turns.step * kSplitTiles) {
        copy.split_by_pages(part, at, min(kSplitTiles, tiles - at), before);
      }
      if (!asked) ask();
      parity ^= 1;
    }
  }
  // Blocks b, b + gridDim.x, ... of `all` are those of this block: all items of each key head, each once for every
  // block that takes splits of it.
  __device__ void run(const Sequences& sequences, int kv_heads, int item_tokens, int part_tokens, int all) {
    if (!early) wait();
    for (int index = static_cast<int>(blockIdx.x); index < all; index += static_cast<int>(gridDim.x)) {
      copy.kv_head = index % kv_heads;
      const int part = index / kv_heads;
      const ForwardTurns turns{part % splits.blocks, splits.blocks};
      const SequenceTile tile = sequence_tile(sequences, 1, item_tokens, part / splits.blocks);
      if (tile.first >= tile.end) continue;
      const std::int64_t start = tile.outside ? 0 : copy.keys.start(tile);
      AttentionItem found = attention_item(tile, start);
      if (turns.first > 0 && turns.first * kSplitKeys >= found.work) continue;
      found.padding[0] = copy.kv_head;
      found.padding[1] = turns.first;
      pass(found);
      // A sequence that decodes has one new key, its last. Prefill is long compared with what starting ahead saves.
      const int old_tiles = tile.rows == 1 ? static_cast<int>(start) / kForwardKeys : 0;
      if (!tile.outside) item(found, turns, part_tokens, old_tiles);
    }
    AttentionItem none{};
    none.work = -1;
    pass(none);
    wait();
  }
};

// Computes the splits `turns` of an item.
template <class Plan>
__device__ void decode_item(DecodeCompute<Plan>& compute, const TileQueries<__nv_bfloat16>& queries,
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
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      compute.position[e] = part.position + min((compute.column() + e) / group, part.tokens - 1);
    }
    const int tiles = (part.work + kForwardKeys - 1) / kForwardKeys;
    if (turns.first * kSplitTiles >= tiles) continue;
    barrier_wait(compute.barriers.q_ready(), q_parity);
    q_parity ^= 1;
    for (int at = turns.first * kSplitTiles; at < tiles; at += turns.step * kSplitTiles) {
      compute.split(at, min(kSplitTiles, tiles - at), part.work, at + turns.step * kSplitTiles >= tiles);
      if (splits.per_row == 1) {
        compute.write(queries, rows, head_row);
      } else {
        compute.store_split(rows, [&](int row) { return splits.at(head_row(row), at / kSplitTiles, Plan::kWidth); });
      }
    }
  }
}

// `early`: no node of the program writes cu_seqlens, starts and block_table, so that items are found, and keys before
// `starts` copied, while earlier kernels run; those keys were written by earlier runs. A block takes every
// gridDim.x-th of `all` (DecodeCopy::run) and copies for the next one while it computes.
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
      barrier_init(barriers.item_free(i), Plan::kWarps);
    }
    for (int i = 0; i < Plan::kStages; ++i) {
      barrier_init(barriers.ready(i), 1);
      barrier_init(barriers.free(i), Plan::kWarps);
    }
    barrier_init_done();
  }
  __syncthreads();
  auto* slots = reinterpret_cast<AttentionItem*>(wgmma_shared + Plan::kItems);
  if (threadIdx.x >= Plan::kConsumers) {
    const ForwardCopy<Plan, Keys> copy{keys, maps, shared, barriers, 0, group, part_tokens * group * 128, {}, {}};
    DecodeCopy<Plan, Keys>{copy, slots, splits, early}.run(queries.sequences, queries.kv_heads, Plan::kItemRows / group,
                                                           part_tokens, all);
    return;
  }
  wait_for_prior_kernels();
  DecodeCompute<Plan> compute;
  compute.bytes = wgmma_shared;
  compute.shared = shared;
  compute.barriers = barriers;
  compute.scale = queries.scale * kLog2e;
  ForwardRing<2> taken;
  for (int q_parity = 0;;) {
    const AttentionItem item = next_forward_item(wgmma_shared + Plan::kItems, taken, barriers);
    if (item.work < 0) return;
    if (item.work == 0) {
      write_zero_item<Plan::kWidth>(queries, item, item.padding[0], static_cast<int>(threadIdx.x), Plan::kConsumers);
      continue;
    }
    decode_item(compute, queries, item, {item.padding[1], splits.blocks}, splits, part_tokens, q_parity);
  }
#endif
}

[[nodiscard]] inline bool wgmma_decode_takes(std::int64_t group) { return group <= 8; }

// Launches the kernel, or returns false and does nothing if the device cannot run it. keys.boxed() must be true.
template <int kWidth, bool kDeep, class Keys>
[[nodiscard]] bool launch_wgmma_decode(const TileQueries<__nv_bfloat16>& queries, const Keys& keys,
                                       const ForwardSplits& splits, cudaStream_t stream) {
  using Plan = WgmmaDecode<kWidth, kDeep>;
  const auto kernel = wgmma_attention_decode<Plan, Keys>;
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  if (attributes.maxThreadsPerBlock < Plan::kThreads) return false;
  const std::int64_t rows = queries.sequences.capacity;
  if (rows == 0) return true;
  const int group = queries.group();
  ForwardMaps maps{};
  maps.q = row_boxes(queries.q, rows, queries.q_stride, queries.heads, kWidth, Plan::kRows / group, group);
  maps.k = row_boxes(keys.k, keys.rows, keys.stride, queries.kv_heads, kWidth, keys.block_size);
  maps.v = row_boxes(keys.v, keys.rows, keys.stride, queries.kv_heads, kWidth, keys.block_size);
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::kSharedBytes),
             "cudaFuncSetAttribute");
  const std::int64_t items = tiles_capacity(queries.sequences, 1, Plan::kItemRows / group);
  const std::int64_t all = items * queries.kv_heads * splits.blocks;
  const auto resident = static_cast<std::int64_t>(Plan::kBlocks) * cuda_device().sm_count();
  launch_dependent(
      {static_cast<unsigned>(std::min(all, resident)), Plan::kThreads, static_cast<std::size_t>(Plan::kSharedBytes)},
      stream, kernel, queries, keys, splits, keys.fixed, static_cast<int>(all), maps);
  check_launch("attention of few rows");
  return true;
}

}  // namespace hone
