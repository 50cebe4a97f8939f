// The tensor maps of matrices of e4m3.
#pragma once

#include "backend/cuda/bulk_copy.cuh"
#include "program/kernel.h"

namespace hone {

// The tensor map of a matrix of bytes [rows, columns] in boxes of `rows` rows of 128.
[[nodiscard]] inline CUtensorMap byte_boxes(const TensorView& view, std::int64_t rows) {
  const auto columns = static_cast<cuuint64_t>(view.row_size());
  return tensor_boxes<2>(view.data, CU_TENSOR_MAP_DATA_TYPE_UINT8, {columns, static_cast<cuuint64_t>(view.capacity())},
                         {columns}, {128, static_cast<cuuint32_t>(rows)}, CU_TENSOR_MAP_SWIZZLE_128B);
}

}  // namespace hone
