// The tensor maps of matrices of e4m3 and of their scales.
#pragma once

#include "backend/cuda/bulk_copy.cuh"
#include "program/kernel.h"

namespace hone {

// The tensor map of a matrix of bytes [rows, columns] in boxes of `box` rows of 128.
[[nodiscard]] inline CUtensorMap byte_boxes(const void* data, std::int64_t rows, std::int64_t columns,
                                            std::int64_t box) {
  const auto width = static_cast<cuuint64_t>(columns);
  return tensor_boxes<2>(data, CU_TENSOR_MAP_DATA_TYPE_UINT8, {width, static_cast<cuuint64_t>(rows)}, {width},
                         {128, static_cast<cuuint32_t>(box)}, CU_TENSOR_MAP_SWIZZLE_128B);
}
[[nodiscard]] inline CUtensorMap byte_boxes(const TensorView& view, std::int64_t box) {
  return byte_boxes(view.data, view.capacity(), view.row_size(), box);
}

// The tensor map of scales f32 [rows, columns] in boxes of a part of `box_rows` rows.
[[nodiscard]] inline CUtensorMap scale_boxes(const float* scales, std::int64_t rows, std::int64_t columns,
                                             std::int64_t box, std::int64_t box_rows = 1) {
  const auto width = static_cast<cuuint64_t>(columns);
  return tensor_boxes<2>(scales, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, {width, static_cast<cuuint64_t>(rows)}, {width * 4},
                         {static_cast<cuuint32_t>(box), static_cast<cuuint32_t>(box_rows)}, CU_TENSOR_MAP_SWIZZLE_NONE);
}
[[nodiscard]] inline CUtensorMap scale_boxes(const TensorView& scales, std::int64_t box, std::int64_t box_rows = 1) {
  return scale_boxes(scales.as<float>(), scales.capacity(), scales.row_size(), box, box_rows);
}

}  // namespace hone
