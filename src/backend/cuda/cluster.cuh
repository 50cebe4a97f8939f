// PTX wrappers for clusters, blocks that run at the same time and reach each other's shared memory, and for bulk copies
// to all of them (sm_90 and later).
#pragma once

#include <cstdint>

#include "backend/cuda/bulk_copy.cuh"

namespace hone {

// Number of the block in its cluster.
[[nodiscard]] __device__ inline int cluster_block() {
  int block;
  asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(block));
  return block;
}
// Waits until all threads of all blocks of the cluster have called it.
__device__ inline void cluster_wait() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;\n" ::
          : "memory");
}
// Arrives at the barrier that a block of the cluster has at this address of its shared memory.
__device__ inline void barrier_arrive_at(std::uint32_t barrier, int block) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(barrier),
      "r"(block)
      : "memory");
}

// Copies a box of a tensor map with two dimensions to shared memory, to an address that is a multiple of 128 bytes, or
// of 1,024 if the box is swizzled. `barrier` counts the bytes.
__device__ inline void bulk_copy_tile(std::uint32_t shared, const CUtensorMap& map, int column, int row,
                                      std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];\n" ::"r"(
          shared),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}
// Does the same for the blocks of the cluster whose bits are set: to this address of each one's shared memory, where
// its barrier at this address counts the bytes.
__device__ inline void bulk_copy_tile_to(std::uint16_t blocks, std::uint32_t shared, const CUtensorMap& map, int column,
                                         int row, std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
      "[%1, {%2, %3}], [%4], %5;\n" ::"r"(shared),
      "l"(&map), "r"(column), "r"(row), "r"(barrier), "h"(blocks)
      : "memory");
}

}  // namespace hone
