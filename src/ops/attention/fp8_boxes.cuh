// Copies of heads of FP8 pages to shared memory, which only CUDA has.
#pragma once

#include "backend/cuda/bulk_copy.cuh"
#include "ops/attention/fp8_heads.cuh"

namespace hone {

__device__ inline void store_shared16(std::uint32_t shared, const uint4& words) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};\n" ::"r"(shared), "r"(words.x), "r"(words.y), "r"(words.z),
               "r"(words.w)
               : "memory");
}

// Copies bytes that follow each other. Addresses and `bytes` are multiples of 16.
__device__ inline void bulk_copy_bytes(std::uint32_t shared, const void* from, int bytes, std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(shared),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// Creates the tensor map of u8 [rows, heads, width] in global memory, with `row_stride` bytes from one row to the next,
// that is copied in boxes of box_rows rows by one head by `width` columns, to addresses that are multiples of 128
// bytes, or of 1,024 if the boxes are swizzled. width is a multiple of 16.
[[nodiscard]] inline CUtensorMap byte_boxes(const std::uint8_t* data, std::int64_t rows, std::int64_t row_stride,
                                            std::int64_t heads, std::int64_t width, std::int64_t box_rows,
                                            CUtensorMapSwizzle swizzle) {
  return tensor_boxes<3>(
      data, CU_TENSOR_MAP_DATA_TYPE_UINT8,
      {static_cast<cuuint64_t>(width), static_cast<cuuint64_t>(heads), static_cast<cuuint64_t>(rows)},
      {static_cast<cuuint64_t>(width), static_cast<cuuint64_t>(row_stride)},
      {static_cast<cuuint32_t>(width), 1, static_cast<cuuint32_t>(box_rows)}, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE);
}

}  // namespace hone
