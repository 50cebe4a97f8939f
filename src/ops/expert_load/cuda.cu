#include "ops/cuda_kernel.cuh"
#include "ops/expert_load/expert_load.h"
#include "ops/registry.h"
#include "ops/router/router.h"

namespace hone {
namespace {

constexpr int kThreads = 1024;  // in one block

// Counts in integers, whose sum does not depend on the order of the atomic additions.
template <class T>
__global__ void __launch_bounds__(kThreads)
    expert_load_kernel(const std::int32_t* expert, RowCount rows, std::int64_t top_k, int experts, T* sums) {
  __shared__ int counts[kMostExperts];
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kThreads) counts[e] = 0;
  __syncthreads();
  const std::int64_t choices = rows.get() * top_k;
  for (std::int64_t i = threadIdx.x; i < choices; i += kThreads) atomicAdd(&counts[expert[i]], 1);
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kThreads) sums[e] += static_cast<T>(counts[e]);
}

template <class T>
void add_load(const KernelCall& call) {
  const TensorView& expert = call.in(ExpertLoadIn::expert);
  const TensorView& sums = call.out(0);
  expert_load_kernel<T><<<1, kThreads, 0, stream_of(call)>>>(expert.as<std::int32_t>(), row_count(expert),
                                                             expert.row_size(), static_cast<int>(sums.elements()),
                                                             cuda_data<T>(sums));
  check_launch("expert_load");
}

}  // namespace

void register_expert_load_cuda(KernelRegistry& registry) {
  registry.add("expert_load", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  call.out(0).dtype() == DType::kF64 ? add_load<double>(call) : add_load<float>(call);
                },
                {}});
}

}  // namespace hone
