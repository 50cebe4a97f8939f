#include "backend/cuda/clear.h"

#include <cstdint>

#include "backend/cuda/check.h"
#include "backend/gpu/kernel.cuh"

namespace hone {
namespace {

constexpr unsigned kThreads = 256;

// blockIdx.x is the row.
__global__ void __launch_bounds__(kThreads)
    clear_rows(const float* accumulated, std::uint16_t* data, std::int64_t width, std::int64_t stride) {
  if (*accumulated != 0) return;
  for (std::int64_t i = threadIdx.x; i < width; i += kThreads) data[blockIdx.x * stride + i] = 0;
}

}  // namespace

void clear_unless(const float* accumulated, const ClearedRows& rows, cudaStream_t stream) {
  if (rows.rows == 0) return;
  clear_rows<<<static_cast<unsigned>(rows.rows), kThreads, 0, stream>>>(
      accumulated, static_cast<std::uint16_t*>(rows.data), static_cast<std::int64_t>(rows.bytes / 2),
      static_cast<std::int64_t>(rows.stride / 2));
  check_launch("clear_unless");
}

}  // namespace hone
