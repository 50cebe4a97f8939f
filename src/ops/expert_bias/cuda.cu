#include "ops/cuda_kernel.cuh"
#include "ops/expert_bias/expert_bias.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr int kThreads = 256;  // in one block

// The sum of loads is one of whole numbers in double, hence exact in any order.
template <class T>
__global__ void __launch_bounds__(kThreads)
    expert_bias_kernel(T* bias, T* load, const std::int32_t* bad, int experts, T speed) {
  __shared__ double sums[32];
  double total = 0;
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kThreads) total += static_cast<double>(load[e]);
  total = block_sum(total, sums);
  const bool moves = *bad == 0;
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += kThreads) {
    const double own = static_cast<double>(load[e]) * static_cast<double>(experts);
    if (moves && own < total) bias[e] += speed;
    if (moves && own > total) bias[e] -= speed;
    load[e] = 0;
  }
}

template <class T>
void update(const KernelCall& call) {
  const TensorView& bias = call.out(ExpertBiasOut::bias);
  expert_bias_kernel<T><<<1, kThreads, 0, stream_of(call)>>>(
      cuda_data<T>(bias), cuda_data<T>(call.out(ExpertBiasOut::load)),
      cuda_data<std::int32_t>(call.in(ExpertBiasIn::bad)), static_cast<int>(bias.elements()),
      static_cast<T>(call.attributes_as<ExpertBiasAttributes>().speed));
  check_launch("expert_bias");
}

}  // namespace

void register_expert_bias_cuda(KernelRegistry& registry) {
  registry.add(
      "expert_bias", DeviceKind::kCuda,
      {[](const KernelCall& call) { call.out(0).dtype() == DType::kF64 ? update<double>(call) : update<float>(call); },
       {}});
}

}  // namespace hone
