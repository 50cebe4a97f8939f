// Clearing of rows that are not in use.
#pragma once

#include "core/error.h"
#include "ops/cuda_kernel.cuh"

namespace hone {

inline constexpr int kClearThreads = 256;

// blockIdx.x is the row, of `words` words.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) clear_rows_kernel(std::uint32_t* rows, RowCount used, std::int64_t words) {
  const std::int64_t row = blockIdx.x;
  if (row < used.get()) return;
  for (std::int64_t i = threadIdx.x; i < words; i += kThreads) rows[row * words + i] = 0;
}

// Clears the rows of y past its count. Rows have a multiple of 4 bytes.
inline void clear_rows_past_count(const KernelCall& call, const TensorView& y) {
  if (y.elements() == 0) return;
  const std::size_t row_bytes = static_cast<std::size_t>(y.row_size()) * size_of(y.dtype());
  HONE_ASSERT(row_bytes % sizeof(std::uint32_t) == 0, "rows of ", row_bytes, " bytes are not cleared");
  clear_rows_kernel<kClearThreads><<<static_cast<unsigned>(y.capacity()), kClearThreads, 0, stream_of(call)>>>(
      reinterpret_cast<std::uint32_t*>(y.data), row_count(y),
      static_cast<std::int64_t>(row_bytes / sizeof(std::uint32_t)));
  check_launch("clear_rows");
}

}  // namespace hone
