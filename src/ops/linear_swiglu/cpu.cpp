#include "ops/linear_swiglu/parts.h"
#include "ops/registry.h"

namespace hone {

void register_linear_swiglu_cpu(KernelRegistry& registry) {
  registry.add("linear_swiglu", DeviceKind::kCpu,
               {run_linear_and_swiglu, [](InputTypes inputs, std::span<const Type>, const Attributes&) {
                  return linear_and_swiglu_workspace(DeviceKind::kCpu, inputs);
                }});
}

}  // namespace hone
