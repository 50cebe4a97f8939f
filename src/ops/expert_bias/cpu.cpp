#include <algorithm>
#include <numeric>

#include "ops/expert_bias/expert_bias.h"
#include "ops/registry.h"

namespace hone {
namespace {

template <class T>
void expert_bias_update(const KernelCall& call) {
  const std::int64_t experts = call.out(ExpertBiasOut::bias).elements();
  T* bias = call.out(ExpertBiasOut::bias).as<T>();
  T* load = call.out(ExpertBiasOut::load).as<T>();
  if (*call.in(ExpertBiasIn::bad).as<std::int32_t>() == 0) {
    const T speed = static_cast<T>(call.attributes_as<ExpertBiasAttributes>().speed);
    const double total = std::accumulate(load, load + experts, 0.0);
    for (std::int64_t e = 0; e < experts; ++e) {
      const double own = static_cast<double>(load[e]) * static_cast<double>(experts);
      if (own < total) bias[e] += speed;
      if (own > total) bias[e] -= speed;
    }
  }
  std::fill_n(load, experts, T(0));
}

}  // namespace

void register_expert_bias_cpu(KernelRegistry& registry) {
  registry.add("expert_bias", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  call.out(0).dtype() == DType::kF64 ? expert_bias_update<double>(call)
                                                     : expert_bias_update<float>(call);
                },
                {}});
}

}  // namespace hone
