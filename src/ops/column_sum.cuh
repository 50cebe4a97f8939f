// The gradient of what all rows share: kernels sum over slices of the rows, and the slices are added here, in order.
#pragma once

#include "ops/cuda_kernel.cuh"

namespace hone {

inline constexpr int kColumnSumColumns = 32;  // a block
inline constexpr int kColumnSumGroups =
    32;  // group g adds the slices g, g + 32, ...; then the groups are added as a tree
inline constexpr int kColumnSumLoads = 12;  // that a thread has under way

// The blocks with blockIdx.y = 1 take the second `slices` of partials, and second_sums.
template <class A>
__global__ void __launch_bounds__(kColumnSumColumns* kColumnSumGroups)
    column_sum_kernel(const A* partials, std::int64_t slices, std::int64_t n, A* sums, A* second_sums) {
  __shared__ A shared[kColumnSumGroups][kColumnSumColumns];
  wait_for_previous();
  if (blockIdx.y == 1) {
    partials += slices * n;
    sums = second_sums;
  }
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumnSumColumns + threadIdx.x;
  const bool exists = column < n;
  const bool adds = threadIdx.y == 0 && exists;
  const A before = adds ? sums[column] : A(0);
  A sum = 0;
  for (std::int64_t first = threadIdx.y; first < slices; first += kColumnSumGroups * kColumnSumLoads) {
    A held[kColumnSumLoads];
#pragma unroll
    for (int i = 0; i < kColumnSumLoads; ++i) {
      const std::int64_t slice = first + i * kColumnSumGroups;
      held[i] = exists && slice < slices ? partials[slice * n + column] : A(0);
    }
#pragma unroll
    for (int i = 0; i < kColumnSumLoads; ++i) sum += held[i];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
#pragma unroll
  for (int half = kColumnSumGroups / 2; half > 0; half /= 2) {
    if (threadIdx.y < half) shared[threadIdx.y][threadIdx.x] += shared[threadIdx.y + half][threadIdx.x];
    __syncthreads();
  }
  if (adds) sums[column] = before + shared[0][threadIdx.x];
}

// sums [n] += the sum of partials [slices, n], and second_sums [n], if given, += that of as many slices behind them.
// The kernel before it in this call made the partials.
template <class A>
void add_column_sums(const KernelCall& call, const A* partials, std::int64_t slices, std::int64_t n, A* sums,
                     A* second_sums = nullptr) {
  if (n == 0) return;
  const dim3 blocks(static_cast<unsigned>(ceil_div(n, kColumnSumColumns)), second_sums != nullptr ? 2 : 1);
  launch_behind(call, column_sum_kernel<A>, blocks, dim3(kColumnSumColumns, kColumnSumGroups), partials, slices, n,
                sums, second_sums);
  check_launch("the sum over slices");
}

}  // namespace hone
