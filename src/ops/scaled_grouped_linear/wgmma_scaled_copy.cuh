// The tiles of the products of wgmma_scaled.cuh, their place in shared memory, and what warps copy.
#pragma once

#include "backend/cuda/wgmma_e4m3.cuh"
#include "ops/grouped_linear/wgmma_copy.cuh"
#include "ops/grouped_linear/wgmma_store.cuh"

namespace hone {

inline constexpr int kScaledDepth = 128;  // terms of a stage
inline constexpr int kTokenBox = 32;      // tokens that are copied at a time

// Shared memory of a block.
template <GroupedProduct kProductOf>
struct ScaledPlan {
  static constexpr GroupedProduct kProduct = kProductOf;
  static constexpr bool kSumsRows = false;
  static constexpr bool kPads = false;
  static constexpr bool kTokenRows = false;
  static constexpr int kColumns = 192;  // the most tokens of a tile
  static constexpr int kStages = 4;
  static constexpr int kStagedColumns = kColumns;  // that are in shared memory on the way to device memory
  static constexpr int kFirstBytes = kGroupedRows * kScaledDepth;
  static constexpr int kStageBytes = kFirstBytes + kColumns * kScaledDepth;
  static constexpr int kStaging = kStages * kStageBytes;
  static constexpr int kScalesAhead = 2;                 // stages whose scales are under way; 4 spill
  static constexpr int kScaleStride = kColumns / 4 + 4;  // the four rows of scales are in different banks
  static constexpr int kScales = kStaging + kGroupedRows * kStagedColumns * 2;  // f32 [kStages, 4, kScaleStride]
  static constexpr int kTiles = kScales + kStages * kScaleStride * 4 * 4;       // GroupedTile [kStages]
  static constexpr int kBarriers = kTiles + kStages * 32;
  static constexpr int kBytes = kBarriers + (2 * kStages + 2) * 8 + 1024;  // the stages begin at a multiple of 1,024
  static_assert(kColumns % 64 == 0 && kBytes <= 232448);
};

// Tensor maps: W in boxes of 128 x 128, tokens in boxes of kTokenBox x 128, y or dx.
struct ScaledMaps {
  CUtensorMap weight, tokens, out;
};

struct ScaledArgs {
  GroupedArgs grouped;
  const float* weight_scale;  // [experts x n / 128, weight_stride]
  std::int64_t weight_stride;
  const float* token_scale;  // [depth / 128, token_stride]
  std::int64_t token_stride;
};

template <class Plan>
struct ScaledRing : GroupedRing<Plan> {
  [[nodiscard]] __device__ std::uint32_t scales() const {
    return this->base + Plan::kScales + this->stage * (Plan::kScaleStride * 4 * 4);
  }
};

// Copies the terms of W of one stage.
template <class Plan>
__device__ inline void copy_scaled_weight(const ScaledRing<Plan>& ring, const ScaledMaps& maps, const ScaledArgs& args,
                                          const GroupedTile& tile, int step) {
  const int term = step * kScaledDepth;
  const std::uint32_t full = ring.full();
  if constexpr (Plan::kProduct == GroupedProduct::kForward) {
    bulk_copy_tile(ring.at(), maps.weight, term, tile.expert * args.grouped.rows + tile.row, full);
  } else {
    bulk_copy_tile(ring.at(), maps.weight, tile.row, tile.expert * args.grouped.depth + term, full);
  }
}

// Copies the terms of one stage.
template <class Plan>
__device__ inline void copy_scaled_stage(const ScaledRing<Plan>& ring, const ScaledMaps& maps, const ScaledArgs& args,
                                         const GroupedTile& tile, int step) {
  const int term = step * kScaledDepth;
  const int boxes = (tile.columns + kTokenBox - 1) / kTokenBox;
  const std::uint32_t full = ring.full();
  barrier_expect(full, Plan::kFirstBytes + boxes * (kTokenBox * kScaledDepth));
  copy_scaled_weight(ring, maps, args, tile, step);
  for (int i = 0; i < boxes; ++i) {
    bulk_copy_tile(ring.at() + Plan::kFirstBytes + i * (kTokenBox * kScaledDepth), maps.tokens, term,
                   tile.column + i * kTokenBox, full);
  }
}

// The warp that writes the scales of stages: that of each token times that of the 128 rows of W. They are ordered by
// the lane of a quad that reads them: the scale of column 8 i + 2 q + j is at [q, 2 i + j]. Threads load them, because
// a bulk copy would have to begin at a multiple of 16 bytes, and an expert begins at any token. They load those of
// Plan::kScalesAhead stages before they need the first.
template <class Plan>
__device__ inline void place_scales(ScaledRing<Plan> ring, const ScaledArgs& args) {
  constexpr int kHeld = Plan::kColumns / 32;
  constexpr int kAhead = Plan::kScalesAhead;
  constexpr bool kTurned = Plan::kProduct == GroupedProduct::kInput;
  const GroupedArgs& grouped = args.grouped;
  TileOrder<Plan> order(grouped);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::uint32_t own = ((lane % 8 / 2) * Plan::kScaleStride + lane / 8 * 2 + lane % 2) * 4;
  GroupedTile tile{};
  const int stride = static_cast<int>(gridDim.x);
  for (int index = static_cast<int>(blockIdx.x); order.find(index, tile); index += stride) {
    const int steps = tile.depth / kScaledDepth;
    const std::int64_t blocks = (kTurned ? grouped.depth : grouped.rows) / kScaledDepth;  // of 128 rows of a matrix
    const std::int64_t row = tile.row / kGroupedRows;
    const float* weight =
        args.weight_scale + tile.expert * blocks * args.weight_stride + (kTurned ? row : row * args.weight_stride);
    const float* tokens = args.token_scale + tile.column + lane;
    float next[kAhead][kHeld] = {};
    float next_weight[kAhead] = {};
    int loaded = 0;
    const auto load = [&](int at) {
      if (loaded++ >= steps) return;
      next_weight[at] = load_for_later(weight);
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        if (lane + 32 * i < tile.columns) next[at][i] = load_for_later(tokens + 32 * i);
      }
      weight += kTurned ? args.weight_stride : 1;
      tokens += args.token_stride;
    };
#pragma unroll
    for (int at = 0; at < kAhead; ++at) load(at);
    for (int step = 0; step < steps; step += kAhead) {
#pragma unroll
      for (int at = 0; at < kAhead; ++at) {
        if (step + at >= steps) break;
        barrier_wait(ring.empty(), ring.parity ^ 1);
#pragma unroll
        for (int i = 0; i < kHeld; ++i) {
          const float scale = next[at][i] * next_weight[at];
          asm volatile("st.shared.f32 [%0], %1;\n" ::"r"(ring.scales() + own + i * 32), "f"(scale) : "memory");
        }
        load(at);
        __syncwarp();
        if (lane == 0) barrier_arrive(ring.full());
        ring.next();
      }
    }
  }
  barrier_wait(ring.empty(), ring.parity ^ 1);
  if (lane == 0) barrier_arrive(ring.full());
}

}  // namespace hone
