// The rows in bf16 go through scratch memory.
#include "ops/quantize_experts/rows.h"
#include "ops/quantize_experts_swiglu/quantize_experts_swiglu.h"
#include "ops/quantize_swiglu/rows.h"
#include "ops/registry.h"

namespace hone {
namespace {

void quantize_experts_swiglu_forward(const KernelCall& call) {
  using In = QuantizeExpertsSwigluIn;
  quantize_expert_rows(swiglu_rows(call, call.in(In::gate_up)), call.in(In::start).as<std::int32_t>(), call);
}

void quantize_experts_swiglu_backward(const KernelCall& call) {
  using In = QuantizeExpertsSwigluBackwardIn;
  quantize_expert_rows(swiglu_gradient_rows(call, call.in(In::dy), call.in(In::gate_up)),
                       call.in(In::start).as<std::int32_t>(), call);
}

}  // namespace

void register_quantize_experts_swiglu_cpu(KernelRegistry& registry) {
  registry.add("quantize_experts_swiglu", DeviceKind::kCpu,
               {quantize_experts_swiglu_forward, quantize_swiglu_workspace});
  registry.add("quantize_experts_swiglu_backward", DeviceKind::kCpu,
               {quantize_experts_swiglu_backward, quantize_swiglu_workspace});
}

}  // namespace hone
