// The copying warps of wgmma_product.cuh and of wgmma_scaled.cuh.
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

// The warp that copies operands: copy(ring, tile, step) fills a stage for one of the steps_of(tile).
template <class Plan, class Ring, class Steps, class Copy>
__device__ inline void copy_tiles(Ring ring, const GroupedArgs& args, GroupedTile* tiles, const Steps& steps_of,
                                  const Copy& copy) {
  TileOrder<Plan> order(args);
  const bool leads = threadIdx.x % 32 == 0;
  GroupedTile tile{};
  const int stride = static_cast<int>(gridDim.x);
  for (int index = static_cast<int>(blockIdx.x); order.find(index, tile); index += stride) {
    const int steps = steps_of(tile);
    for (int step = 0; step < steps; ++step, ring.next()) {
      if (leads) {
        barrier_wait(ring.empty(), ring.parity ^ 1);
        if (step == 0) tiles[ring.stage] = tile;
        copy(ring, tile, step);
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

// A box of 64 x 64 numbers of dW: its address in the staging memory, and its first column and row.
struct StagedBox {
  std::uint32_t at;
  int column, row;
};

// Boxes of a tile of two by 64 rows of dW.
[[nodiscard]] __device__ inline int boxes_of_columns(const GroupedTile& tile) { return (tile.columns + 63) / 64 * 2; }

// The warp that keeps dW of bf16: copies what is there to the staging memory unless it is overwritten, and the sums
// from there back; box_of(tile, i) is a StagedBox, one of boxes_of(tile).
template <class Plan, class Boxes, class Box>
__device__ inline void keep_sums(const GroupedRing<Plan>& ring, const CUtensorMap& out, const GroupedArgs& args,
                                 const Boxes& boxes_of, const Box& box_of) {
  TileOrder<Plan> order(args);
  const bool leads = threadIdx.x % 32 == 0;
  const bool reads = !overwrites(args);
  GroupedTile tile{};
  int parity = 0;
  const int stride = static_cast<int>(gridDim.x);
  for (int index = static_cast<int>(blockIdx.x); order.find(index, tile); index += stride) {
    if (leads) {
      const int boxes = boxes_of(tile);
      barrier_expect(ring.old_ready(), reads ? boxes * kGroupedPart : 0);
      for (int i = 0; reads && i < boxes; ++i) {
        const StagedBox box = box_of(tile, i);
        bulk_copy_box(box.at, out, box.column, box.row, tile.expert, ring.old_ready());
      }
      barrier_wait(ring.sum_ready(), parity);
      for (int i = 0; i < boxes; ++i) {
        const StagedBox box = box_of(tile, i);
        bulk_store_box(out, box.at, box.column, box.row, tile.expert);
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
