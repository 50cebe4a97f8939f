// PTX wrappers with which tiles of bf16 leave registers by way of shared memory (sm_90 and later).
#pragma once

#include <cstdint>

#include "backend/cuda/bulk_copy.cuh"
#include "backend/cuda/mma.cuh"

namespace hone {

[[nodiscard]] __device__ inline uint4 load_shared16(std::uint32_t shared) {
  uint4 words;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "r"(shared)
               : "memory");
  return words;
}
[[nodiscard]] __device__ inline float load_shared_float(std::uint32_t shared) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];\n" : "=f"(value) : "r"(shared) : "memory");
  return value;
}
// Copies a box of shared memory to where a row_boxes() map has it; elements outside the tensor are not written. The
// copy is one of those that bulk_commit() ends and the waits after it cover.
__device__ inline void bulk_store_box(const CUtensorMap& map, std::uint32_t shared, int column, int head, int row) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%1, %2, %3}], [%4];\n" ::"l"(&map),
               "r"(column), "r"(head), "r"(row), "r"(shared)
               : "memory");
}

}  // namespace hone
