// The copying warps of wgmma_product.cuh.
#pragma once

#include "ops/grouped_linear/wgmma_tiles.cuh"

namespace hone {

// Tensor maps of a product. first and second are its operands: W and x, W and dy, or dy and x; few is second in boxes
// of 8 rows. out is y, dx or a dW of bf16.
struct GroupedMaps {
  CUtensorMap first, second, few, out;
};

// Copies the terms of one stage.
template <class Plan>
__device__ inline void copy_stage(const GroupedMaps& maps, const GroupedTile& tile, int step, std::uint32_t at,
                                  std::uint32_t full) {
  const int term = tile.first + step * kGroupedDepth;
  const int few = Plan::kSumsRows ? 0 : (grouped_width(tile.columns) <= kFewTokens ? 8 : 0);
  const int box = few != 0 ? few : 64;
  const int boxes = (tile.columns + box - 1) / box;
  barrier_expect(full, Plan::kFirstBytes + boxes * box * kGroupedDepth * 2);
  if constexpr (Plan::kProduct == GroupedProduct::kForward) {
    bulk_copy_box(at, maps.first, term, tile.row, tile.expert, full);
  } else {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const int row = tile.row + 64 * part;
      if constexpr (Plan::kProduct == GroupedProduct::kInput) {
        bulk_copy_box(at + part * kGroupedPart, maps.first, row, term, tile.expert, full);
      } else {
        bulk_copy_box(at + part * kGroupedPart, maps.first, row, 0, term, full);
      }
    }
  }
  const CUtensorMap& second = few != 0 ? maps.few : maps.second;
  const std::uint32_t to = at + Plan::kFirstBytes;
  for (int i = 0; i < boxes; ++i) {
    const std::uint32_t place = to + i * box * kGroupedDepth * 2;
    const int column = Plan::kSumsRows ? tile.column + i * box : term;
    const int row = Plan::kSumsRows ? term : tile.column + i * box;
    bulk_copy_box(place, second, column, 0, row, full);
  }
}

// The warp that copies operands.
template <class Plan>
__device__ inline void grouped_copy(GroupedRing<Plan> ring, const GroupedMaps& maps, const GroupedArgs& args,
                                    GroupedTile* tiles) {
  GroupedOrder<Plan> order(args);
  const bool leads = threadIdx.x % 32 == 0;
  GroupedTile tile{};
  const int stride = static_cast<int>(gridDim.x);
  for (int index = static_cast<int>(blockIdx.x); order.find(index, tile); index += stride) {
    const int steps = tile.steps();
    for (int step = 0; step < steps; ++step, ring.next()) {
      if (leads) {
        barrier_wait(ring.empty(), ring.parity ^ 1);
        if (step == 0) tiles[ring.stage] = tile;
        copy_stage<Plan>(maps, tile, step, ring.at(), ring.full());
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

// The warp that keeps dW of bf16: copies what is there to the staging memory, and the sums from there back.
template <class Plan>
__device__ inline void grouped_keep(const GroupedRing<Plan>& ring, const GroupedMaps& maps, const GroupedArgs& args) {
  GroupedOrder<Plan> order(args);
  const bool leads = threadIdx.x % 32 == 0;
  GroupedTile tile{};
  int parity = 0;
  const int stride = static_cast<int>(gridDim.x);
  for (int index = static_cast<int>(blockIdx.x); order.find(index, tile); index += stride) {
    if (leads) {
      const int parts = (tile.columns + 63) / 64;
      barrier_expect(ring.old_ready(), parts * 2 * kGroupedPart);
      for (int i = 0; i < 2 * parts; ++i) {
        bulk_copy_box(ring.staging() + i * kGroupedPart, maps.out, tile.column + i / 2 * 64, tile.row + i % 2 * 64,
                      tile.expert, ring.old_ready());
      }
      barrier_wait(ring.sum_ready(), parity);
      for (int i = 0; i < 2 * parts; ++i) {
        bulk_store_box(maps.out, ring.staging() + i * kGroupedPart, tile.column + i / 2 * 64, tile.row + i % 2 * 64,
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
