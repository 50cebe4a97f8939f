#include <cstdint>
#include <vector>

#include "core/error.h"
#include "ops/expert_load/expert_load.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class T>
void add_load(const KernelCall& call) {
  const TensorView& expert = call.in(ExpertLoadIn::expert);
  const auto* chosen = expert.as<std::int32_t>();
  const std::int64_t experts = call.out(0).elements();
  const std::int64_t choices = expert.rows() * expert.row_size();
  std::vector<std::int64_t> counts(static_cast<std::size_t>(experts));
  for (std::int64_t i = 0; i < choices; ++i) {
    HONE_ASSERT(chosen[i] >= 0 && chosen[i] < experts, "expert ", chosen[i], " is not one of ", experts);
    ++counts[static_cast<std::size_t>(chosen[i])];
  }
  T* sums = call.out(0).as<T>();
  for (std::int64_t e = 0; e < experts; ++e) sums[e] += static_cast<T>(counts[static_cast<std::size_t>(e)]);
}

}  // namespace

void register_expert_load_cpu(KernelRegistry& registry) {
  registry.add("expert_load", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  call.out(0).dtype() == DType::kF64 ? add_load<double>(call) : add_load<float>(call);
                },
                {}});
}

}  // namespace hone
