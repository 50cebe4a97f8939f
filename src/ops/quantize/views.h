// The outputs of quantize and of the operations that it is fused with, for their kernels.
#pragma once

#include <cstdint>

#include "program/kernel.h"

namespace hone {

// Where a kernel writes a quantized matrix [capacity, k]; the members are those of QuantizedRows.
struct QuantizedViews {
  std::uint8_t* rows;
  float* row_scale;
  std::uint8_t* columns = nullptr;  // null: not wanted
  float* column_scale = nullptr;
  std::int64_t column_scale_stride = 0;  // scales in a row of those of blocks of 128 x 128; 0: blocks of 128 x 1
  std::int64_t capacity;
  std::int64_t k;
};

// The outputs of a call, which begin with those of quantize; `blocks`: columns have scales of blocks of 128 x 128. The
// columns may have another number of rows, which is columns.row_size(), than the capacity.
[[nodiscard]] QuantizedViews quantized_views(const KernelCall& call, bool blocks);
// With the `blocks` of QuantizeAttributes.
[[nodiscard]] QuantizedViews quantized_views(const KernelCall& call);

}  // namespace hone
