#include "ops/elementwise.cuh"
#include "ops/registry.h"
#include "ops/weighted_sum/weighted_sum.h"

namespace hone {
namespace {

constexpr int kThreads = 1024;

// Weighted sum, launched as one block. Thread t adds entries t, t + kThreads, ... in order; the threads' sums are added
// as a tree.
template <class T>
__global__ void __launch_bounds__(kThreads) sum_kernel(const T* values, const T* weights, RowCount rows, T* sum) {
  __shared__ double shared[32];
  const std::int64_t used = rows.get();
  double mine = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < used; i += kThreads) {
    const T weight = weights[i];
    const T value = values[i];
    if (weight != T(0)) mine += static_cast<double>(value) * static_cast<double>(weight);
  }
  const double total = block_sum(mine, shared);
  if (threadIdx.x == 0) *sum = static_cast<T>(total);
}

template <class T>
void forward(const KernelCall& call) {
  sum_kernel<<<1, kThreads, 0, stream_of(call)>>>(cuda_data<T>(call.in(WeightedSumIn::values)),
                                                  cuda_data<T>(call.in(WeightedSumIn::weights)),
                                                  row_count(call.in(WeightedSumIn::values)), cuda_data<T>(call.out(0)));
  check_launch("weighted_sum");
}

template <class T>
struct Share {
  const T* dy;
  __device__ T operator()(T weight) const { return weight == T(0) ? T(0) : *dy * weight; }
};

template <class T>
void backward(const KernelCall& call) {
  launch_elementwise<T, Share<T>, T>(call, cuda_data<T>(call.out(0)),
                                     {cuda_data<T>(call.in(WeightedSumBackwardIn::dy))},
                                     cuda_data<T>(call.in(WeightedSumBackwardIn::weights)));
}

}  // namespace

void register_weighted_sum_cuda(KernelRegistry& registry) {
  registry.add("weighted_sum", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  call.in(WeightedSumIn::values).dtype() == DType::kF64 ? forward<double>(call) : forward<float>(call);
                },
                {}});
  registry.add("weighted_sum_backward", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  call.in(WeightedSumBackwardIn::dy).dtype() == DType::kF64 ? backward<double>(call)
                                                                            : backward<float>(call);
                },
                {}});
}

}  // namespace hone
