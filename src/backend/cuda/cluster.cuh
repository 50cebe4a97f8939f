// PTX wrappers for blocks of a cluster (sm_90 and later) that use each other's shared memory.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace hone {

// The address of something in the shared memory of a block of the cluster.
[[nodiscard]] __device__ inline std::uint32_t cluster_address(std::uint32_t shared, int rank) {
  std::uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(address) : "r"(shared), "r"(rank));
  return address;
}
__device__ inline void cluster_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}
// Copies bytes of this block's shared memory to that of another one, whose barrier counts them.
__device__ inline void cluster_copy(std::uint32_t to, std::uint32_t from, int bytes, std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(to),
      "r"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
// Copies a box as bulk_copy_tile() does, to the same address in each of the two blocks of a cluster, whose barriers at
// the same address count the bytes.
__device__ inline void bulk_copy_tile_to_pair(std::uint32_t shared, const CUtensorMap& map, int column, int row,
                                              std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, "
      "%3}], [%4], %5;\n" ::"r"(shared),
      "l"(&map), "r"(column), "r"(row), "r"(barrier), "h"(std::uint16_t{3})
      : "memory");
}
// Waits for all threads of the cluster that have not ended.
__device__ inline void cluster_meet() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n" ::: "memory");
}

}  // namespace hone
