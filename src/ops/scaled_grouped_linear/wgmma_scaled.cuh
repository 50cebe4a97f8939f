// The products of experts in e4m3 on Hopper (sm_90a): y = x W^T and dx = dy W. dW is that of wgmma_added.cuh.
//
// The tiles, their order and the threads are those of grouped_linear/wgmma_product.cuh: a tile is 128 rows of W (for dx
// of W^T) by up to 192 tokens of one expert, 64 rows for each of two computing warpgroups; one warp copies. Tokens
// are the columns of wgmma, which takes any multiple of 8, so that an expert of 390 tokens has three tiles of 144
// columns, and one token costs 8. The other way round (wgmma_tokens.cuh, for y of many tokens) an expert is filled up
// to a multiple of 64 rows.
//
//            terms ->                tokens ->
//          +------------+         +-----------+
//   W or   |  128 (WG 1)|  terms  | x^T, dy^T |          a stage: 16 KiB of W, up to 24 KiB of tokens, scales
//   W^T    |  128 (WG 2)|    |    +-----------+ -> y^T, dx^T
//          +------------+    v
//
// A stage has 128 terms, for which a token has one scale and the 128 rows of W another. The tensor cores sum a stage
// from zero; then its sums, times both scales, are added in f32 registers, so that tensor cores, which cut their sums
// (docs/lab-notes.md, Products in FP8), never add more than 128 terms. Source: DeepGEMM, DeepSeek-AI (2025),
// https://github.com/deepseek-ai/DeepGEMM.
//
// Both operands of wgmma in e4m3 must run along the sum in shared memory. W has the terms of dx as rows, so its tiles
// are loaded into registers by ldmatrix, which transposes pairs of bytes, and the bytes are sorted there; no transposed
// copy of a weight is made. Row 2 i of the 16 rows of a warp is then row i of the fragment, and row 2 i + 1 row 8 + i.
//
// Another warp writes the products of both scales into a stage, in the order in which the computing threads read them.
//
// The bits of a row do not depend on other rows or on the routing: its sum is one chain over stages of 128 terms in
// ascending order, whatever the columns of the tile.
#pragma once

#include "ops/scaled_grouped_linear/wgmma_scaled_copy.cuh"

namespace hone {

// A computing warpgroup.
template <class Plan>
struct ScaledCompute {
  static constexpr int kGroups = Plan::kColumns / 8;
  static constexpr int kLinks = kScaledDepth / 32;
  static constexpr bool kHolds = Plan::kProduct == GroupedProduct::kInput;
  ScaledRing<Plan> ring;
  const ScaledMaps& maps;
  const ScaledArgs& args;
  GroupedPlace place;
  float sums[kGroups][4];

  // Loads the warp's 16 rows of W^T, columns of the stage, for 32 terms. A matrix of ldmatrix has 8 terms, chosen so
  // that their rows are in different banks: lanes of the upper half of a quad find theirs in the other matrix.
  __device__ void load_link(int link, std::uint32_t (&held)[4]) const {
    const int lane = place.thread % 32;
    const int matrix = lane / 8;
    const int pair = lane % 8 / 2;  // which lane of a quad gets the two terms
    const int term = 32 * link + 16 * (matrix / 2) + 4 * pair + 2 * (matrix % 2 ^ pair / 2) + lane % 2;
    const SharedRows<64> rows{ring.at()};
    std::uint32_t words[4];
    load_matrices_transposed(words, rows.at(term, place.group * 4 + place.thread / 32));
    const bool swapped = lane % 4 >= 2;
    const std::uint32_t even = swapped ? 0x2064 : 0x6420;
    const std::uint32_t odd = swapped ? 0x3175 : 0x7531;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      held[2 * half] = __byte_perm(words[2 * half], words[2 * half + 1], even);
      held[2 * half + 1] = __byte_perm(words[2 * half], words[2 * half + 1], odd);
    }
  }

  // Starts the products of the stage that `at` has come to.
  template <int kCount>
  __device__ void start_stage(float (&c)[kCount][4], const ScaledRing<Plan>& at) const {
    const std::uint64_t tokens = warpgroup_operand(at.at() + Plan::kFirstBytes, 0);
    if constexpr (kHolds) {
      std::uint32_t held[kLinks][4];
#pragma unroll
      for (int link = 0; link < kLinks; ++link) load_link(link, held[link]);
      warpgroup_fence();
#pragma unroll
      for (int link = 0; link < kLinks; ++link) warpgroup_multiply_e4m3(c, held[link], tokens + 2 * link, link > 0);
      warpgroup_commit();
    } else {
      const std::uint64_t own = warpgroup_operand(at.at() + place.group * kGroupedPart, 0);
      warpgroup_fence();
#pragma unroll
      for (int link = 0; link < kLinks; ++link) warpgroup_multiply_e4m3(c, own + 2 * link, tokens + 2 * link, link > 0);
      warpgroup_commit();
    }
  }

  // Adds the sums of a stage, times their scales.
  template <int kCount>
  __device__ void add_stage(const float (&c)[kCount][4]) {
    const std::uint32_t scales = ring.scales() + place.thread % 4 * (Plan::kScaleStride * 4);
#pragma unroll
    for (int pair = 0; pair < (kCount + 1) / 2; ++pair) {
      float scale[4];
      asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];\n"
                   : "=f"(scale[0]), "=f"(scale[1]), "=f"(scale[2]), "=f"(scale[3])
                   : "r"(scales + pair * 16)
                   : "memory");
#pragma unroll
      for (int i = 2 * pair; i < 2 * pair + 2 && i < kCount; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] = fmaf(c[i][j], scale[i % 2 * 2 + j % 2], sums[i][j]);
      }
    }
  }

  // Computes the sums of the first stages of a tile.
  template <int kCount>
  __device__ void multiply(int steps) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) sums[i][0] = sums[i][1] = sums[i][2] = sums[i][3] = 0;
    for (int step = 0; step < steps; ++step, ring.next()) {
      float c[kCount][4];
      barrier_wait(ring.full(), ring.parity);
      start_stage(c, ring);
      warpgroup_wait<0>();
      settle(c);
      add_stage(c);
      place.release(ring.empty());
    }
  }
  template <int kCount>
  __device__ void multiply_width(int groups, const GroupedTile& tile) {
    if constexpr (kCount > kGroups) {
      return;
    } else if (groups == kCount) {
      multiply<kCount>(tile.depth / kScaledDepth);
    } else {
      multiply_width<kCount == 1 ? 2 : kCount + 2>(groups, tile);
    }
  }

  // Stores a tile of dx, of whose sums c[.][0] and c[.][2] are neighbours in a row of a token, and c[.][1] and c[.][3].
  __device__ void store_input(const GroupedTile& tile) const {
    const int lane = place.thread % 32;
    store_tokens(tile, ring, maps.out, args.grouped, place, [&](const SharedRows<64>& staged, int begin, int count) {
#pragma unroll
      for (int i = 0; i < Plan::kStagedColumns / 8; ++i) {
        if (i * 8 >= count) break;
        const float(&c)[4] = sums[begin / 8 + i];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const std::uint32_t at =
              staged.at(i * 8 + lane % 4 * 2 + j, place.thread / 32 * 2 + lane / 16) + lane / 4 % 4 * 4;
          asm volatile("st.shared.b32 [%0], %1;\n" ::"r"(at), "r"(packed_bf16(c[j], c[j + 2])) : "memory");
        }
      }
    });
  }

  // All tiles of the block.
  __device__ void run(const GroupedTile* tiles) {
    for (;;) {
      barrier_wait(ring.full(), ring.parity);
      const GroupedTile tile = tiles[ring.stage];
      if (tile.columns == 0) break;
      multiply_width<1>(grouped_width(tile.columns) / 8, tile);
      if constexpr (kHolds) {
        store_input(tile);
      } else {
        store_transposed(tile, ring, maps.out, args.grouped, place, sums);
      }
    }
    if (place.thread == 0) bulk_wait();
  }
};

template <class Plan>
__global__ void HONE_WGMMA_BOUNDS(kGroupedThreads, 1)
    scaled_product(const __grid_constant__ ScaledMaps maps, const __grid_constant__ ScaledArgs args) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char scaled_shared[];
  const std::uint32_t begin = shared_address(scaled_shared);
  ScaledRing<Plan> ring{{.base = (begin + 1023) / 1024 * 1024}};
  auto* tiles = reinterpret_cast<GroupedTile*>(scaled_shared + (ring.base - begin) + Plan::kTiles);
  const int thread = static_cast<int>(threadIdx.x);
  allow_dependent_launch();
  if (thread == 0) {
    for (int stage = 0; stage < Plan::kStages; ++stage) {
      barrier_init(ring.barrier(stage), 2);
      barrier_init(ring.barrier(Plan::kStages + stage), 8);
    }
    barrier_init_done();
  }
  __syncthreads();
  wait_for_prior_kernels();
  if (thread < 128) {
    fewer_registers<56>();
    if (thread < 32) {
      copy_tiles<Plan>(
          ring, args.grouped, tiles, [](const GroupedTile& tile) { return tile.depth / kScaledDepth; },
          [&](const ScaledRing<Plan>& to, const GroupedTile& tile, int step) {
            copy_scaled_stage(to, maps, args, tile, step);
          });
    } else if (thread < 64) {
      place_scales<Plan>(ring, args);
    }
  } else {
    more_registers<224>();
    const GroupedPlace place{.group = thread / 128 - 1, .thread = thread % 128};
    ScaledCompute<Plan> compute{.ring = ring, .maps = maps, .args = args, .place = place};
    compute.run(tiles);
    clear_unused_rows(args.grouped, place);
  }
#endif
}

}  // namespace hone
