// y = x W^T of experts, with operands, sums and bits as in wgmma_scaled.cuh, but with the tokens as the rows of wgmma:
// 64 for each of the two computing warpgroups, by 192 rows of W.
//
//            terms ->                rows of W ->
//          +------------+         +-----------+
//   tokens |  128 (WG 1)|  terms  |    W^T    |          a stage: 16 KiB of tokens, 24 KiB of W, scales of tokens
//          |  128 (WG 2)|    |    +-----------+ -> y
//          +------------+    v
//
// A thread's 96 sums are those of two tokens, so that it reads two scales of tokens and two of W in a stage, and not 48
// products of them, and one warp is enough to copy. In return an expert's tokens are filled up to a multiple of 64.
// Source of the tile and of when a stage is given back: DeepGEMM, DeepSeek-AI (2025),
// https://github.com/deepseek-ai/DeepGEMM.
//
// Steps, where full and empty are mbarriers of a stage:
//   1. one thread waits for empty, names the tile if the stage is its first, and fills the stage by bulk copies; the
//      first stage of a tile brings the scales of W for all of its stages;
//   2. the computing warps wait for full, read their scales and start four links of wgmma of 32 terms each;
//   3. they arrive at empty when the links are done, and then add the sums;
//   4. after the last stage y is rounded to bf16 and leaves by way of the staging memory.
#pragma once

#include "ops/scaled_grouped_linear/wgmma_scaled_copy.cuh"

namespace hone {

// Shared memory of a block.
struct TokensPlan {
  static constexpr GroupedProduct kProduct = GroupedProduct::kForward;
  static constexpr bool kSumsRows = false;
  static constexpr bool kPads = false;
  static constexpr bool kTokenRows = true;
  static constexpr int kColumns = 128;     // tokens of a tile
  static constexpr int kWeightRows = 192;  // rows of W of a tile
  static constexpr int kBand = 16;         // tiles of tokens that are multiplied by all of W before the next
  static constexpr int kStages = 4;
  static constexpr int kUnrolled = 4;     // stages
  static constexpr int kMostSteps = 256;  // stages of a tile
  static constexpr int kFirstBytes = kColumns * kScaledDepth;
  static constexpr int kStageBytes = kFirstBytes + kWeightRows * kScaledDepth;
  static constexpr int kStaging = kStages * kStageBytes;
  static constexpr int kScaleBox = kColumns + 4;  // scales that are copied, from a multiple of 4 on
  static constexpr int kScaleBytes = 640;         // of a stage
  static constexpr int kScales = kStaging + kColumns * kWeightRows * 2;  // f32 [kStages, kScaleBytes / 4]
  static constexpr int kWeightScales = kScales + kStages * kScaleBytes;  // f32 [2, 2, kMostSteps], of every other tile
  static constexpr int kTiles = kWeightScales + 2 * 2 * kMostSteps * 4;  // GroupedTile [kStages]
  static constexpr int kBarriers = kTiles + kStages * 32;
  static constexpr int kBytes = kBarriers + 2 * kStages * 8 + 1024;  // the stages begin at a multiple of 1,024
  static_assert(kBytes <= 232448);

  // Returns true if tiles have no more stages than there is room for scales, and not so few that the scales of the tile
  // before the last are still read when those of the next are copied.
  [[nodiscard]] static constexpr bool takes_depth(std::int64_t depth) {
    return depth >= kStages * kScaledDepth && depth <= kMostSteps * kScaledDepth;
  }
};

// Tensor maps: W in boxes of kWeightRows x 128, tokens in boxes of kColumns x 128, y, the scales of W in rows, those of
// tokens in boxes of kScaleBox.
struct TokensMaps {
  CUtensorMap weight, tokens, out, weight_scale, token_scale;
};

struct TokensRing : GroupedRing<TokensPlan> {
  [[nodiscard]] __device__ std::uint32_t scales() const {
    return this->base + TokensPlan::kScales + this->stage * TokensPlan::kScaleBytes;
  }
  [[nodiscard]] __device__ std::uint32_t weight_scales(int parity) const {
    return this->base + TokensPlan::kWeightScales + parity * (2 * TokensPlan::kMostSteps * 4);
  }
};

// The copies of stages, for copy_tiles(). The scales of W are copied for a tile as a whole, as part of its first stage.
struct TokensCopy {
  const TokensMaps& maps;
  const ScaledArgs& args;
  int parity = 1;
  __device__ void operator()(const TokensRing& ring, const GroupedTile& tile, int step) {
    using Plan = TokensPlan;
    const std::uint32_t full = ring.full();
    const int weight_bytes = static_cast<int>(args.weight_stride) * 4;
    barrier_expect(full, Plan::kStageBytes + Plan::kScaleBox * 4 + (step == 0 ? 2 * weight_bytes : 0));
    bulk_copy_tile(ring.at(), maps.tokens, step * kScaledDepth, tile.column, full);
    bulk_copy_tile(ring.at() + Plan::kFirstBytes, maps.weight, step * kScaledDepth,
                   tile.expert * args.grouped.rows + tile.row, full);
    bulk_copy_tile(ring.scales(), maps.token_scale, tile.column / 4 * 4, step, full);
    if (step > 0) return;
    parity ^= 1;
    const int block = tile.expert * (args.grouped.rows / kScaledDepth) + tile.row / kScaledDepth;
    for (int i = 0; i < 2; ++i) {
      bulk_copy_tile(ring.weight_scales(parity) + i * (Plan::kMostSteps * 4), maps.weight_scale, 0, block + i, full);
    }
  }
};

// A computing warpgroup.
struct TokensCompute {
  using Plan = TokensPlan;
  static constexpr int kGroups = Plan::kWeightRows / 8;
  TokensRing ring;
  const TokensMaps& maps;
  const ScaledArgs& args;
  GroupedPlace place;
  float sums[kGroups][4];

  // Computes the sums of a tile, the first kFirst groups of whose columns have the first scale of W.
  template <int kFirst>
  __device__ void multiply(const GroupedTile& tile, int parity) {
    const int steps = tile.depth / kScaledDepth;
#pragma unroll
    for (int i = 0; i < kGroups; ++i) sums[i][0] = sums[i][1] = sums[i][2] = sums[i][3] = 0;
    const std::uint32_t row = (tile.column % 4 + place.group * 64 + place.thread / 32 * 16 + place.thread % 32 / 4) * 4;
    const std::uint32_t weight_scales = ring.weight_scales(parity);
#pragma unroll Plan::kUnrolled
    for (int step = 0; step < steps; ++step, ring.next()) {
      float c[kGroups][4];
      barrier_wait(ring.full(), ring.parity);
      const float first = load_shared_float(weight_scales + step * 4);
      const float second = load_shared_float(weight_scales + step * 4 + Plan::kMostSteps * 4);
      const float low = load_shared_float(ring.scales() + row);
      const float high = load_shared_float(ring.scales() + row + 32);
      const std::uint64_t own = warpgroup_operand(ring.at() + place.group * kGroupedPart, 0);
      const std::uint64_t weight = warpgroup_operand(ring.at() + Plan::kFirstBytes, 0);
      warpgroup_fence();
#pragma unroll
      for (int link = 0; link < kScaledDepth / 32; ++link) {
        warpgroup_multiply_e4m3(c, own + 2 * link, weight + 2 * link, link > 0);
      }
      warpgroup_commit();
      warpgroup_wait<0>();
      settle(c);
      place.release(ring.empty());
      const float scale[2][2] = {{low * first, high * first}, {low * second, high * second}};
#pragma unroll
      for (int i = 0; i < kGroups; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] = fmaf(c[i][j], scale[i < kFirst ? 0 : 1][j / 2], sums[i][j]);
      }
    }
  }

  // Gives the stages of a tile back in which the warpgroup has no tokens.
  __device__ void skip(int steps) {
    for (int step = 0; step < steps; ++step, ring.next()) {
      barrier_wait(ring.full(), ring.parity);
      place.release(ring.empty());
    }
  }

  __device__ void store(const GroupedTile& tile) const {
    constexpr int kParts = Plan::kWeightRows / 64;
    const int lane = place.thread % 32;
    const std::uint32_t staging = ring.staging() + place.group * (kParts * kGroupedPart);
    const int token = tile.column + place.group * 64;
    const int count = min(tile.columns - place.group * 64, 64);
    if (place.thread == 0) bulk_wait_read();
    named_barrier_wait(kGroupedOwnBarrier + place.group, 128);
#pragma unroll
    for (int pair = 0; pair < kGroups / 2; ++pair) {
      const SharedRows<64> staged{staging + pair / 4 * kGroupedPart};
      std::uint32_t words[4];
      pack_columns(sums, pair, words);
      store_matrices(staged.at(place.thread / 32 * 16 + lane % 16, pair % 4 * 2 + lane / 16), words);
    }
    fence_async_shared();
    named_barrier_wait(kGroupedOwnBarrier + place.group, 128);
    const int parts = min((args.grouped.rows - tile.row) / 64, kParts);
    if (count == 64) {
      if (place.thread == 0) {
        for (int i = 0; i < parts; ++i) {
          bulk_store_box(maps.out, staging + i * kGroupedPart, tile.row + i * 64, 0, token);
        }
        bulk_commit();
      }
      return;
    }
    for (int i = place.thread; i < count * 8 * parts; i += 128) {
      const int row = i / (8 * parts);
      const int chunk = i % (8 * parts);
      const SharedRows<64> staged{staging + chunk / 8 * kGroupedPart};
      auto* to = static_cast<__nv_bfloat16*>(args.grouped.out) +
                 static_cast<std::int64_t>(token + row) * args.grouped.rows + tile.row + chunk * 8;
      *reinterpret_cast<uint4*>(to) = load_shared16(staged.at(row, chunk % 8));
    }
  }

  // All tiles of the block.
  __device__ void run(const GroupedTile* tiles) {
    for (int parity = 0;; parity ^= 1) {
      barrier_wait(ring.full(), ring.parity);
      const GroupedTile tile = of_warp(tiles[ring.stage]);
      if (tile.columns == 0) break;
      if (tile.columns <= place.group * 64) {
        skip(tile.depth / kScaledDepth);
        continue;
      }
      tile.row % kScaledDepth == 0 ? multiply<16>(tile, parity) : multiply<8>(tile, parity);
      store(tile);
    }
    if (place.thread == 0) bulk_wait();
  }
};

__global__ void HONE_WGMMA_BOUNDS(kGroupedThreads, 1)
    tokens_product(const __grid_constant__ TokensMaps maps, const __grid_constant__ ScaledArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Plan = TokensPlan;
  extern __shared__ __align__(1024) unsigned char tokens_shared[];
  const std::uint32_t begin = shared_address(tokens_shared);
  TokensRing ring{{.base = (begin + 1023) / 1024 * 1024}};
  auto* tiles = reinterpret_cast<GroupedTile*>(tokens_shared + (ring.base - begin) + Plan::kTiles);
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = of_warp(thread / 32);
  allow_dependent_launch();
  if (thread == 0) {
    for (int stage = 0; stage < Plan::kStages; ++stage) {
      barrier_init(ring.barrier(stage), 1);
      barrier_init(ring.barrier(Plan::kStages + stage), 8);
    }
    barrier_init_done();
  }
  __syncthreads();
  wait_for_prior_kernels();
  if (warp < 4) {
    fewer_registers<40>();
    if (warp == 0) {
      TokensCopy copy{maps, args};
      copy_tiles<Plan>(
          ring, args.grouped, tiles, [](const GroupedTile& tile) { return tile.depth / kScaledDepth; },
          [&](const TokensRing& to, const GroupedTile& tile, int step) { copy(to, tile, step); });
    }
  } else {
    more_registers<232>();
    const GroupedPlace place{.group = warp / 4 - 1, .thread = thread % 128};
    TokensCompute compute{.ring = ring, .maps = maps, .args = args, .place = place};
    compute.run(tiles);
    clear_unused_rows(args.grouped, place);
  }
#endif
}

}  // namespace hone
