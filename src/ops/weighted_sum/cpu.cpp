#include "ops/registry.h"
#include "ops/rows.h"
#include "ops/weighted_sum/weighted_sum.h"

namespace hone {
namespace {

template <class T>
void weighted_sum_forward(const KernelCall& call) {
  const T* values = call.in(WeightedSumIn::values).as<T>();
  const T* weights = call.in(WeightedSumIn::weights).as<T>();
  *call.out(0).as<T>() = static_cast<T>(lane_sum<double>(call.in(WeightedSumIn::values).rows(), [&](std::int64_t i) {
    return weights[i] == T(0) ? 0.0 : static_cast<double>(values[i]) * static_cast<double>(weights[i]);
  }));
}

template <class T>
void weighted_sum_backward(const KernelCall& call) {
  const T dy = *call.in(WeightedSumBackwardIn::dy).as<T>();
  const T* weights = call.in(WeightedSumBackwardIn::weights).as<T>();
  T* dvalues = call.out(0).as<T>();
  for (std::int64_t i = 0; i < call.in(WeightedSumBackwardIn::weights).rows(); ++i)
    dvalues[i] = weights[i] == T(0) ? T(0) : dy * weights[i];
  zero_tail(call.out(0));
}

}  // namespace

void register_weighted_sum_cpu(KernelRegistry& registry) {
  registry.add("weighted_sum", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  call.in(WeightedSumIn::values).dtype() == DType::kF64 ? weighted_sum_forward<double>(call)
                                                                        : weighted_sum_forward<float>(call);
                },
                {}});
  registry.add("weighted_sum_backward", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  call.in(WeightedSumBackwardIn::dy).dtype() == DType::kF64 ? weighted_sum_backward<double>(call)
                                                                            : weighted_sum_backward<float>(call);
                },
                {}});
}

}  // namespace hone
