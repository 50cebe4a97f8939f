// The tiles of the products of wgmma_scaled.cuh, their place in shared memory, and the warps that copy.
#pragma once

#include "backend/cuda/cluster.cuh"
#include "backend/cuda/wgmma_e4m3.cuh"
#include "ops/grouped_linear/wgmma_store.cuh"

namespace hone {

inline constexpr int kScaledDepth = 128;  // terms of a stage
inline constexpr int kTokenBox = 32;      // tokens that are copied at a time

// Shared memory of a block. kMost is the largest number of tokens of a tile, kStaged of those that are in shared memory
// on the way to device memory, kClusterOf the blocks of a cluster.
template <GroupedProduct kProductOf, int kMost, int kStagesOf, int kStaged, int kClusterOf>
struct ScaledPlan {
  static constexpr GroupedProduct kProduct = kProductOf;
  static constexpr bool kSumsRows = kProduct == GroupedProduct::kWeight;
  static constexpr bool kPads = kSumsRows;
  static constexpr int kCluster = kClusterOf;
  static constexpr int kRows = kGroupedRows * kCluster;  // of the tiles of a cluster
  static constexpr int kColumns = kMost;
  static constexpr int kStages = kStagesOf;
  static constexpr int kStagedColumns = kStaged;
  static constexpr int kFirstBytes = kGroupedRows * kScaledDepth;
  static constexpr int kStageBytes = kFirstBytes + kColumns * kScaledDepth;
  static constexpr int kStaging = kStages * kStageBytes;
  static constexpr int kScales = kStaging + kGroupedRows * kStaged * 2;  // f32 [kStages, kColumns]
  static constexpr int kTiles = kScales + kStages * kColumns * 4;        // GroupedTile [kStages]
  static constexpr int kBarriers = kTiles + kStages * 32;
  static constexpr int kBytes = kBarriers + (2 * kStages + 2) * 8 + 1024;  // the stages begin at a multiple of 1,024
  static_assert(kColumns % 32 == 0 && kBytes <= 232448);
  static_assert(!kSumsRows || (kStaged == kMost && kMost % 64 == 0));
};

// Tensor maps: W in boxes of 128 x 128, tokens in boxes of kTokenBox x 128, their scales in rows of kColumns, y or dx.
// For dW: the columns of x, those of dy with their scales, and dW if it is bf16.
struct ScaledMaps {
  CUtensorMap weight, tokens, scales, out;
};

struct ScaledArgs {
  GroupedArgs grouped;
  const float* weight_scale;  // [experts x n / 128, weight_stride]
  std::int64_t weight_stride;
};

template <class Plan>
struct ScaledRing : GroupedRing<Plan> {
  [[nodiscard]] __device__ std::uint32_t scales() const {
    return this->base + Plan::kScales + this->stage * (Plan::kColumns * 4);
  }
};

// Copies the terms of one stage. `block` is the number of the calling thread's block in its cluster.
template <class Plan>
__device__ inline void copy_scaled_stage(const ScaledRing<Plan>& ring, const ScaledMaps& maps, const ScaledArgs& args,
                                         const GroupedTile& tile, int step, int block) {
  const int term = (Plan::kSumsRows ? tile.first : 0) + step * kScaledDepth;
  const int boxes = (tile.columns + kTokenBox - 1) / kTokenBox;
  const std::uint32_t full = ring.full();
  barrier_expect(full, Plan::kFirstBytes + boxes * (kTokenBox * kScaledDepth) + Plan::kColumns * 4);
  if constexpr (Plan::kProduct == GroupedProduct::kForward) {
    bulk_copy_tile(ring.at(), maps.weight, term, tile.expert * args.grouped.rows + tile.row, full);
  } else if constexpr (Plan::kProduct == GroupedProduct::kInput) {
    bulk_copy_tile(ring.at(), maps.weight, tile.row, tile.expert * args.grouped.depth + term, full);
  } else {
    bulk_copy_tile(ring.at(), maps.weight, term, tile.row, full);
  }
  bulk_copy_tile(ring.scales(), maps.scales, tile.column, term / kScaledDepth, full);
  for (int i = block; i < boxes; i += Plan::kCluster) {
    const std::uint32_t to = ring.at() + Plan::kFirstBytes + i * (kTokenBox * kScaledDepth);
    const int token = tile.column + i * kTokenBox;
    if constexpr (Plan::kCluster == 1) {
      bulk_copy_tile(to, maps.tokens, term, token, full);
    } else {
      bulk_copy_tile_to((1 << Plan::kCluster) - 1, to, maps.tokens, term, token, full);
    }
  }
}

// The warp that copies operands.
template <class Plan>
__device__ inline void copy_scaled(ScaledRing<Plan> ring, const ScaledMaps& maps, const ScaledArgs& args,
                                   GroupedTile* tiles, int block) {
  GroupedOrder<Plan> order(args.grouped);
  const bool leads = threadIdx.x % 32 == 0;
  GroupedTile tile{};
  const int stride = static_cast<int>(gridDim.x) / Plan::kCluster;
  for (int index = static_cast<int>(blockIdx.x) / Plan::kCluster; order.find(index, tile); index += stride) {
    tile.row += block * kGroupedRows;
    const int steps = tile.depth / kScaledDepth;
    for (int step = 0; step < steps; ++step, ring.next()) {
      if (leads) {
        barrier_wait(ring.empty(), ring.parity ^ 1);
        if (step == 0) tiles[ring.stage] = tile;
        copy_scaled_stage(ring, maps, args, tile, step, block);
      }
    }
    __syncwarp();
  }
  if (leads) {
    barrier_wait(ring.empty(), ring.parity ^ 1);
    tiles[ring.stage].columns = 0;
    barrier_arrive(ring.full());
  }
}

// Address in the staging memory of 64 columns of a tile of dW: those from 64 part on, in the rows of a warpgroup.
template <class Plan>
[[nodiscard]] __device__ inline std::uint32_t staged_part(const ScaledRing<Plan>& ring, int group, int part) {
  return ring.staging() + group * (Plan::kStagedColumns * 128) + part * kGroupedPart;
}

// The warp that keeps dW of bf16: copies what is there to the staging memory, and the sums from there back.
template <class Plan>
__device__ inline void keep_scaled(const ScaledRing<Plan>& ring, const ScaledMaps& maps, const ScaledArgs& args) {
  static_assert(Plan::kCluster == 1);
  GroupedOrder<Plan> order(args.grouped);
  const bool leads = threadIdx.x % 32 == 0;
  GroupedTile tile{};
  int parity = 0;
  const int stride = static_cast<int>(gridDim.x);
  for (int index = static_cast<int>(blockIdx.x); order.find(index, tile); index += stride) {
    if (leads) {
      const int parts = (tile.columns + 63) / 64;
      barrier_expect(ring.old_ready(), parts * 2 * kGroupedPart);
      for (int i = 0; i < 2 * parts; ++i) {
        bulk_copy_box(staged_part(ring, i % 2, i / 2), maps.out, tile.row + i % 2 * 64, tile.column + i / 2 * 64,
                      tile.expert, ring.old_ready());
      }
      barrier_wait(ring.sum_ready(), parity);
      for (int i = 0; i < 2 * parts; ++i) {
        bulk_store_box(maps.out, staged_part(ring, i % 2, i / 2), tile.row + i % 2 * 64, tile.column + i / 2 * 64,
                       tile.expert);
      }
      bulk_commit();
      bulk_wait_read();
    }
    __syncwarp();
    parity ^= 1;
  }
  if (leads) bulk_wait();
}

}  // namespace hone
