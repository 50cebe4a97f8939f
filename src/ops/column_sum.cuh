// Second stage of sums over rows, such as the gradient of a norm's weight: a kernel sums slices of the rows into
// partials, and this one adds the partials in a fixed order.
#pragma once

#include "ops/cuda_kernel.cuh"

namespace hone {

inline constexpr int kColumnSumColumns = 32;  // columns of a block
inline constexpr int kColumnSumGroups =
    32;  // group g adds the slices g, g + 32, ...; then the groups are added as a tree
inline constexpr int kColumnSumLoads = 12;  // loads that a thread has in flight

// sums += the partials of all slices. Blocks with blockIdx.y = 1 add the second half of partials to second_sums.
template <class A>
__global__ void __launch_bounds__(kColumnSumColumns* kColumnSumGroups)
    column_sum_kernel(const A* partials, std::int64_t slices, std::int64_t n, A* sums, A* second_sums) {
  __shared__ A shared[kColumnSumGroups][kColumnSumColumns];
  wait_for_prior_kernels();
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
  // A fixed tree over the groups keeps the order of the sum independent of timing.
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
#pragma unroll
  for (int half = kColumnSumGroups / 2; half > 0; half /= 2) {
    if (threadIdx.y < static_cast<unsigned>(half))
      shared[threadIdx.y][threadIdx.x] += shared[threadIdx.y + half][threadIdx.x];
    __syncthreads();
  }
  if (adds) sums[column] = before + shared[0][threadIdx.x];
}

// Adds partials [slices, n] to sums [n], and, if second_sums [n] is given, the next `slices` x n partials to it. The
// kernel launched just before in this call must be the one that writes the partials (launch_dependent).
template <class A>
void add_column_sums(const KernelCall& call, const A* partials, std::int64_t slices, std::int64_t n, A* sums,
                     A* second_sums = nullptr) {
  if (n == 0) return;
  const dim3 blocks(static_cast<unsigned>(ceil_div(n, kColumnSumColumns)), second_sums != nullptr ? 2 : 1);
  launch_dependent({blocks, dim3(kColumnSumColumns, kColumnSumGroups)}, stream_of(call), column_sum_kernel<A>, partials,
                   slices, n, sums, second_sums);
  check_launch("column sum over slices");
}

}  // namespace hone
