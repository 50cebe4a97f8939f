// y = x W^T in e4m3 with sums and bits as in wgmma_scaled.cuh, but with the tokens as the rows of wgmma: 64 or 128 for
// each of the two computing warpgroups, by 192 or 128 rows of W. For experts (scaled_grouped_linear), for one matrix
// (scaled_linear/wgmma_dense.cuh), and for dW of experts, where the columns of dy are in place of the tokens and those
// of x in place of W (wgmma_added.cuh).
//
//            terms ->                rows of W ->
//          +------------+         +-----------+
//   tokens |  128 (WG 1)|  terms  |    W^T    |          a stage: tokens, W, scales of tokens
//          |  128 (WG 2)|    |    +-----------+ -> y
//          +------------+    v
//
// A thread's 96 (128) sums are those of two (four) tokens, so that it reads two (four) scales of tokens and two (one)
// of W in a stage, and not 48 products of them, and one warp is enough to copy. In return an expert's tokens are filled
// up to a multiple of 64. Source of the tiles and of when a stage is given back: DeepGEMM, DeepSeek-AI (2025),
// https://github.com/deepseek-ai/DeepGEMM.
//
// Steps, where full and empty are mbarriers of a stage:
//   1. one thread waits for empty (in a pair: for that of both blocks), names the tile if the stage is its first, and
//   fills the stage by bulk copies; the
//      first stage of a tile brings the scales of W for all of its stages, except for dW, whose number of stages is
//      that of an expert's tokens and has no limit, and where each stage brings its own;
//   2. the computing warps wait for full, read their scales and start four links of wgmma of 32 terms each, for 64
//      tokens after the other;
//   3. they arrive at empty when the last links are done, and then add the sums;
//   4. after the last stage a Result takes the sums: they are rounded to bf16 and leave by way of the staging memory.
#pragma once

#include "backend/cuda/cluster.cuh"
#include "ops/scaled_grouped_linear/wgmma_scaled_copy.cuh"

namespace hone {

inline constexpr int kMostScaleBox = 256;  // scales that a bulk copy takes

// Products of tokens by W: y of experts, y of one matrix, dW of experts.
enum class TokensUse { kExperts, kMatrix, kGradient };

// Shared memory of a block whose computing warpgroups have kPartsOf times 64 tokens each.
template <int kPartsOf, int kWeightRowsOf, int kStagesOf, TokensUse kUse>
struct TokensPlan {
  static constexpr bool kSumsRows = kUse == TokensUse::kGradient;
  static constexpr bool kPads = kSumsRows;
  static constexpr bool kTokenRows = true;
  static constexpr bool kOfExperts = kUse == TokensUse::kExperts;  // tokens of a tile begin and end anywhere
  static constexpr int kParts = kPartsOf;
  static constexpr int kColumns = 128 * kParts;          // tokens of a tile
  static constexpr int kWeightRows = kWeightRowsOf;      // rows of W of a tile
  static constexpr int kWeightParts = kWeightRows / 64;  // boxes of y of 64 tokens
  static constexpr int kWeightBlocks =
      kWeightRows % kScaledDepth == 0 ? kWeightRows / kScaledDepth : 2;  // with a scale
  static constexpr int kBand = 16 / kParts;  // tiles of tokens that are multiplied by all of W before the next
  static constexpr int kStages = kStagesOf;
  static constexpr int kUnrolled = 4;  // stages
  // Stages of a tile whose scales of W are copied with the first one; 0: each brings its own, and there is no limit.
  static constexpr int kMostSteps = kSumsRows ? 0 : kOfExperts ? kMostScaleBox : 2 * kMostScaleBox;
  // Pairs of blocks multiply the same tokens by neighbouring rows of W: each copies half of the tokens to both.
  static constexpr bool kPair = kUse == TokensUse::kMatrix && kPartsOf == 2;
  static constexpr int kTokenBox = kColumns / (kPair ? 2 : 1);
  static constexpr int kFirstBytes = kColumns * kScaledDepth;
  static constexpr int kStageBytes = kFirstBytes + kWeightRows * kScaledDepth;
  static constexpr int kStaging = kStages * kStageBytes;
  static constexpr int kScaleBox = kColumns + (kOfExperts ? 4 : 0);  // scales that are copied, from a multiple of 4 on
  static constexpr int kOwnScales = (kScaleBox * 4 + 127) / 128 * 128;          // of W in a stage begin there
  static constexpr int kScaleBytes = kOwnScales + (kMostSteps == 0 ? 128 : 0);  // of a stage
  static constexpr int kScales = kStaging + kColumns * kWeightRows * 2;         // f32 [kStages, kScaleBytes / 4]
  // f32 [2, kWeightBlocks, kMostSteps], of every other tile
  static constexpr int kWeightScales = kScales + kStages * kScaleBytes;
  static constexpr int kTiles = kWeightScales + 2 * kWeightBlocks * kMostSteps * 4;  // GroupedTile [kStages]
  static constexpr int kBarriers = kTiles + kStages * 32;
  static constexpr int kBytes = kBarriers + (2 * kStages + 2) * 8 + 1024;  // the stages begin at a multiple of 1,024
  static_assert(kBytes <= 232448 && kWeightBlocks <= 2);

  // Returns true if tiles have no more stages than there is room for scales, and not so few that the scales of the tile
  // before the last are still read when those of the next are copied.
  [[nodiscard]] static constexpr bool takes_depth(std::int64_t depth) {
    return depth >= kStages * kScaledDepth && depth <= kMostSteps * kScaledDepth;
  }
};
using ExpertTokensPlan = TokensPlan<1, 192, 4, TokensUse::kExperts>;

inline constexpr int kOwnScaleBox = 4;  // scales of W of each row that a stage brings, of which one is its own

// Tensor maps: W in boxes of kWeightRows x 128, tokens in boxes of kTokenBox x 128, y or dW, the scales of W in rows
// or, of more than kMostScaleBox, in boxes of as many, or for dW in boxes of kWeightBlocks x kOwnScaleBox, those of
// tokens in boxes of kScaleBox.
struct TokensMaps {
  CUtensorMap weight, tokens, out, weight_scale, token_scale;
};

template <class Plan>
struct TokensRing : GroupedRing<Plan> {
  [[nodiscard]] __device__ std::uint32_t scales() const {
    return this->base + Plan::kScales + this->stage * Plan::kScaleBytes;
  }
  [[nodiscard]] __device__ std::uint32_t weight_scales(int parity) const {
    return this->base + Plan::kWeightScales + parity * (Plan::kWeightBlocks * Plan::kMostSteps * 4);
  }
  // Address of the scale of W for a stage: of `block` of the tile, whose stage is the step-th.
  [[nodiscard]] __device__ std::uint32_t weight_scale(const GroupedTile& tile, int step, int block, int parity) const {
    if constexpr (Plan::kMostSteps > 0) {
      return weight_scales(parity) + (step + block * Plan::kMostSteps) * 4;
    } else {
      return scales() + Plan::kOwnScales +
             ((tile.first / kScaledDepth + step) % kOwnScaleBox + block * kOwnScaleBox) * 4;
    }
  }
  // The staging memory of a box: 64 tokens of a tile from 64 rows on, by 64 rows of W from 64 part on.
  [[nodiscard]] __device__ std::uint32_t staged(int rows, int part) const {
    return this->staging() + (rows * Plan::kWeightParts + part) * kGroupedPart;
  }
};

// The place of the block in its pair.
[[nodiscard]] __device__ inline int rank_in_pair() { return static_cast<int>(blockIdx.x) % 2; }

// The copies of stages, for copy_tiles().
template <class Plan>
struct TokensCopy {
  const TokensMaps& maps;
  const ScaledArgs& args;
  int parity = 1;
  __device__ void operator()(const TokensRing<Plan>& ring, const GroupedTile& tile, int step) {
    Plan::kMostSteps > 0 ? copy_stage_of_tile(ring, tile, step) : copy_own(ring, tile, step);
  }

 private:
  // A stage that brings its scales of W.
  __device__ void copy_own(const TokensRing<Plan>& ring, const GroupedTile& tile, int step) {
    const std::uint32_t full = ring.full();
    const int stage = tile.first / kScaledDepth + step;
    barrier_expect(full, Plan::kStageBytes + Plan::kScaleBox * 4 + Plan::kWeightBlocks * kOwnScaleBox * 4);
    bulk_copy_tile(ring.at(), maps.tokens, stage * kScaledDepth, tile.column, full);
    bulk_copy_tile(ring.at() + Plan::kFirstBytes, maps.weight, stage * kScaledDepth, tile.row, full);
    bulk_copy_tile(ring.scales(), maps.token_scale, tile.column, stage, full);
    bulk_copy_tile(ring.scales() + Plan::kOwnScales, maps.weight_scale, stage / kOwnScaleBox * kOwnScaleBox,
                   tile.row / kScaledDepth, full);
  }

  // The scales of W are copied for a tile as a whole, as part of its first stage.
  __device__ void copy_stage_of_tile(const TokensRing<Plan>& ring, const GroupedTile& tile, int step) {
    const std::uint32_t full = ring.full();
    const int stride = static_cast<int>(args.weight_stride);
    const int boxes = Plan::kMostSteps > kMostScaleBox ? (stride + kMostScaleBox - 1) / kMostScaleBox : 1;
    const int weight_bytes = Plan::kWeightBlocks * boxes * (boxes > 1 ? kMostScaleBox : stride) * 4;
    barrier_expect(full, Plan::kStageBytes + Plan::kScaleBox * 4 + (step == 0 ? weight_bytes : 0));
    if constexpr (Plan::kPair) {
      const int rank = rank_in_pair();
      bulk_copy_tile_to_pair(ring.at() + rank * (Plan::kFirstBytes / 2), maps.tokens, step * kScaledDepth,
                             tile.column + rank * Plan::kTokenBox, full);
    } else {
      bulk_copy_tile(ring.at(), maps.tokens, step * kScaledDepth, tile.column, full);
    }
    bulk_copy_tile(ring.at() + Plan::kFirstBytes, maps.weight, step * kScaledDepth,
                   tile.expert * args.grouped.rows + tile.row, full);
    bulk_copy_tile(ring.scales(), maps.token_scale, tile.column / 4 * 4, step, full);
    if (step > 0) return;
    parity ^= 1;
    const int block = tile.expert * (args.grouped.rows / kScaledDepth) + tile.row / kScaledDepth;
    for (int i = 0; i < Plan::kWeightBlocks; ++i) {
      for (int box = 0; box < boxes; ++box) {
        bulk_copy_tile(ring.weight_scales(parity) + (i * Plan::kMostSteps + box * kMostScaleBox) * 4, maps.weight_scale,
                       box * kMostScaleBox, block + i, full);
      }
    }
  }
};

// A computing warpgroup.
template <class Plan>
struct TokensCompute {
  static constexpr int kParts = Plan::kParts;
  static constexpr int kGroups = Plan::kWeightRows / 8;
  static constexpr bool kOfGradient = Plan::kSumsRows;
  TokensRing<Plan> ring;
  const TokensMaps& maps;
  const ScaledArgs& args;
  GroupedPlace place;
  bool to_zeros = false;  // what is there counts as zero (overwrites())
  float sums[kParts][kGroups][4];

  // The tokens of a tile before those of the warpgroup.
  [[nodiscard]] __device__ int before() const { return place.group * (kParts * 64); }
  // Boxes of 64 rows of W that a tile has.
  [[nodiscard]] __device__ int weight_parts(const GroupedTile& tile) const {
    return min((args.grouped.rows - tile.row) / 64, Plan::kWeightParts);
  }
  // Address of the lane's 16 bytes in the staging memory, for 16 rows of W of a part of the tokens (pack_columns).
  [[nodiscard]] __device__ std::uint32_t staged(int part, int pair) const {
    const int lane = place.thread % 32;
    const SharedRows<64> rows{ring.staged(place.group * kParts + part, pair / 4)};
    return rows.at(place.thread / 32 * 16 + lane % 16, pair % 4 * 2 + lane / 16);
  }

  // Computes the sums of a tile, the first kFirst groups of whose columns have the first scale of W.
  template <int kFirst>
  __device__ void multiply(const GroupedTile& tile, int parity) {
    const int steps = tile.depth / kScaledDepth;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int i = 0; i < kGroups; ++i) sums[part][i][0] = sums[part][i][1] = sums[part][i][2] = sums[part][i][3] = 0;
    }
    const std::uint32_t row = (tile.column % 4 + before() + place.thread / 32 * 16 + place.thread % 32 / 4) * 4;
#pragma unroll Plan::kUnrolled
    for (int step = 0; step < steps; ++step, ring.next()) {
      barrier_wait(ring.full(), ring.parity);
      const float first = load_shared_float(ring.weight_scale(tile, step, 0, parity));
      const float second =
          Plan::kWeightBlocks > 1 ? load_shared_float(ring.weight_scale(tile, step, 1, parity)) : first;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        float c[kGroups][4];
        const float low = load_shared_float(ring.scales() + row + part * 256);
        const float high = load_shared_float(ring.scales() + row + part * 256 + 32);
        const std::uint64_t own = warpgroup_operand(ring.at() + (place.group * kParts + part) * kGroupedPart, 0);
        const std::uint64_t weight = warpgroup_operand(ring.at() + Plan::kFirstBytes, 0);
        warpgroup_fence();
#pragma unroll
        for (int link = 0; link < kScaledDepth / 32; ++link) {
          warpgroup_multiply_e4m3(c, own + 2 * link, weight + 2 * link, link > 0);
        }
        warpgroup_commit();
        warpgroup_wait<0>();
        settle(c);
        if (part == kParts - 1) release();
        const float scale[2][2] = {{low * first, high * first}, {low * second, high * second}};
#pragma unroll
        for (int i = 0; i < kGroups; ++i) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            sums[part][i][j] = fmaf(c[i][j], scale[i < kFirst ? 0 : 1][j / 2], sums[part][i][j]);
          }
        }
      }
    }
  }

  // Gives a stage back, to both blocks of a pair.
  __device__ void release() const {
    place.release(ring.empty());
    if constexpr (Plan::kPair) {
      if (place.thread % 32 == 0) cluster_arrive(cluster_address(ring.empty(), 1 - rank_in_pair()));
    }
  }

  // Gives the stages of a tile back in which the warpgroup has no tokens.
  __device__ void skip(int steps) {
    for (int step = 0; step < steps; ++step, ring.next()) {
      barrier_wait(ring.full(), ring.parity);
      release();
    }
  }

  // Writes the sums, rounded to bf16.
  __device__ void store(const GroupedTile& tile) const {
    const int count = min(tile.columns - before(), kParts * 64);
    if (place.thread == 0) bulk_wait_read();
    named_barrier_wait(kGroupedOwnBarrier + place.group, 128);
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int pair = 0; pair < kGroups / 2; ++pair) {
        std::uint32_t words[4];
        pack_columns(sums[part], pair, words);
        store_matrices(staged(part, pair), words);
      }
    }
    fence_async_shared();
    named_barrier_wait(kGroupedOwnBarrier + place.group, 128);
    if (Plan::kOfExperts && count < 64) return store_rows(tile, count);
    if (place.thread != 0) return;
    const int weight_parts = this->weight_parts(tile);
    for (int part = 0; part * 64 < count; ++part) {
      for (int i = 0; i < weight_parts; ++i) {
        bulk_store_box(maps.out, ring.staged(place.group * kParts + part, i), tile.row + i * 64, 0,
                       tile.column + before() + part * 64);
      }
    }
    bulk_commit();
  }

  // Writes the first rows of the staging memory, which are fewer than those of a box: the next ones are those of
  // another expert.
  __device__ void store_rows(const GroupedTile& tile, int count) const {
    const int weight_parts = this->weight_parts(tile);
    for (int i = place.thread; i < count * 8 * weight_parts; i += 128) {
      const int row = i / (8 * weight_parts);
      const int chunk = i % (8 * weight_parts);
      const SharedRows<64> rows{ring.staged(place.group, chunk / 8)};
      auto* to = static_cast<__nv_bfloat16*>(args.grouped.out) +
                 static_cast<std::int64_t>(tile.column + before() + row) * args.grouped.rows + tile.row + chunk * 8;
      *reinterpret_cast<uint4*>(to) = load_shared16(rows.at(row, chunk % 8));
    }
  }

  // All tiles of the block.
  template <class Result>
  __device__ void run(const GroupedTile* tiles, const Result& result) {
    to_zeros = overwrites(args.grouped);
    for (int parity = 0;; parity ^= 1) {
      barrier_wait(ring.full(), ring.parity);
      const GroupedTile tile = of_warp(tiles[ring.stage]);
      if (tile.columns == 0) break;
      if (tile.columns <= before()) {
        skip(tile.depth / kScaledDepth);
        result.skip(*this, parity);
        continue;
      }
      Plan::kWeightBlocks == 1 || tile.row % kScaledDepth == 0 ? multiply<16>(tile, parity) : multiply<8>(tile, parity);
      result.take(*this, tile, parity);
    }
    result.end(*this);
  }
};

// y of experts. A Result takes the sums of each tile, with the parity of the tiles before; kKeeps: a warp has keep().
struct ExpertTokensResult {
  static constexpr bool kKeeps = false;
  template <class Compute>
  __device__ void take(const Compute& compute, const GroupedTile& tile, int) const {
    compute.store(tile);
  }
  template <class Compute>
  __device__ void skip(const Compute&, int) const {}
  template <class Compute>
  __device__ void end(const Compute& compute) const {
    if (compute.place.thread == 0) bulk_wait();
    clear_unused_rows(compute.args.grouped, compute.place);
  }
};

template <class Plan, class Result>
__global__ void HONE_WGMMA_BOUNDS(kGroupedThreads, 1)
    tokens_product(const __grid_constant__ TokensMaps maps, const __grid_constant__ ScaledArgs args,
                   const __grid_constant__ Result result) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char tokens_shared[];
  const std::uint32_t begin = shared_address(tokens_shared);
  TokensRing<Plan> ring{{.base = (begin + 1023) / 1024 * 1024}};
  auto* tiles = reinterpret_cast<GroupedTile*>(tokens_shared + (ring.base - begin) + Plan::kTiles);
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = of_warp(thread / 32);
  allow_dependent_launch();
  if (thread == 0) {
    for (int stage = 0; stage < Plan::kStages; ++stage) {
      barrier_init(ring.barrier(stage), 1);
      barrier_init(ring.barrier(Plan::kStages + stage), Plan::kPair ? 16 : 8);
    }
    if constexpr (Result::kKeeps) {
      barrier_init(ring.old_ready(), 1);
      barrier_init(ring.sum_ready(), 8);
    }
    barrier_init_done();
  }
  if constexpr (Plan::kPair) {
    cluster_meet();
  } else {
    __syncthreads();
  }
  wait_for_prior_kernels();
  if (warp < 4) {
    fewer_registers<40>();
    if (warp == 0) {
      TokensCopy<Plan> copy{maps, args};
      copy_tiles<Plan>(
          ring, args.grouped, tiles, [](const GroupedTile& tile) { return tile.depth / kScaledDepth; },
          [&](const TokensRing<Plan>& to, const GroupedTile& tile, int step) { copy(to, tile, step); });
    } else if constexpr (Result::kKeeps) {
      if (warp == 1) result.keep(ring, maps, args);
    }
  } else {
    more_registers<232>();
    const GroupedPlace place{.group = warp / 4 - 1, .thread = thread % 128};
    TokensCompute<Plan> compute{.ring = ring, .maps = maps, .args = args, .place = place};
    compute.run(tiles, result);
  }
  if constexpr (Plan::kPair) {
    __syncwarp();
    cluster_meet();  // until then the other block copies to this one's shared memory and arrives at its barriers
  }
#endif
}

}  // namespace hone
