#include <cmath>

#include "ops/guard/guard.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

template <class T>
void guard_forward(const KernelCall& call) {
  const TensorView& values = call.in(GuardIn::values);
  const T* each = values.as<T>();
  for (std::int64_t i = 0; i < values.rows() * values.row_size(); ++i) {
    if (!std::isfinite(widen(each[i]))) *call.out(0).as<std::int32_t>() = 1;
  }
}

}  // namespace

void register_guard_cpu(KernelRegistry& registry) {
  registry.add("guard", DeviceKind::kCpu,
               {[](const KernelCall& call) {
                  for_floating(call.in(GuardIn::values).dtype(), [&]<class T>() { guard_forward<T>(call); });
                },
                {}});
}

}  // namespace hone
