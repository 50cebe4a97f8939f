// The gradient of what all rows share: kernels sum over slices of the rows, and the slices are added here, in order.
#pragma once

#include "ops/cuda_kernel.cuh"

namespace hone {

inline constexpr int kColumnSumColumns = 32;  // a block
inline constexpr int kColumnSumGroups =
    32;  // group g adds the slices g, g + 32, ...; then the groups are added as a tree

template <class A>
__global__ void __launch_bounds__(kColumnSumColumns* kColumnSumGroups)
    column_sum_kernel(const A* partials, std::int64_t slices, std::int64_t n, A* sums) {
  __shared__ A shared[kColumnSumGroups][kColumnSumColumns];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumnSumColumns + threadIdx.x;
  A sum = 0;
  if (column < n) {
#pragma unroll 8
    for (std::int64_t slice = threadIdx.y; slice < slices; slice += kColumnSumGroups) {
      sum += partials[slice * n + column];
    }
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
#pragma unroll
  for (int half = kColumnSumGroups / 2; half > 0; half /= 2) {
    if (threadIdx.y < half) shared[threadIdx.y][threadIdx.x] += shared[threadIdx.y + half][threadIdx.x];
    __syncthreads();
  }
  if (threadIdx.y == 0 && column < n) sums[column] += shared[0][threadIdx.x];
}

// sums [n] += the sum of partials [slices, n].
template <class A>
void add_column_sums(const KernelCall& call, const A* partials, std::int64_t slices, std::int64_t n, A* sums) {
  if (n == 0) return;
  const auto blocks = static_cast<unsigned>(ceil_div(n, kColumnSumColumns));
  column_sum_kernel<<<blocks, dim3(kColumnSumColumns, kColumnSumGroups), 0, stream_of(call)>>>(partials, slices, n,
                                                                                               sums);
  check_launch("the sum over slices");
}

}  // namespace hone
