// The rows in bf16 go through scratch memory.
#include "ops/quantize_experts/rows.h"
#include "ops/quantize_experts_swiglu/quantize_experts_swiglu.h"
#include "ops/registry.h"
#include "ops/swiglu/rows.h"

namespace hone {
namespace {

void forward(const KernelCall& call) {
  const TensorView& gate_up = call.in(QuantizeExpertsSwigluIn::gate_up);
  const std::int64_t n = gate_up.row_size() / 2;
  const auto* from = gate_up.as<BFloat16>();
  auto* y = reinterpret_cast<BFloat16*>(call.workspace.data());
  for_rows(gate_up.rows(), 8 * n, [&](std::int64_t row) {
    const BFloat16* gate = from + row * 2 * n;
    swiglu_row(gate, gate + n, n, y + row * n);
  });
  quantize_expert_rows(y, call.in(QuantizeExpertsSwigluIn::start).as<std::int32_t>(), call);
}

void backward(const KernelCall& call) {
  using In = QuantizeExpertsSwigluBackwardIn;
  const TensorView& dy = call.in(In::dy);
  const std::int64_t n = dy.row_size();
  const auto* dys = dy.as<BFloat16>();
  const auto* gate_ups = call.in(In::gate_up).as<BFloat16>();
  auto* dgate_ups = reinterpret_cast<BFloat16*>(call.workspace.data());
  for_rows(dy.rows(), 8 * n, [&](std::int64_t row) {
    const BFloat16* gate = gate_ups + row * 2 * n;
    BFloat16* dgate = dgate_ups + row * 2 * n;
    swiglu_backward_row(dys + row * n, gate, gate + n, n, dgate, dgate + n);
  });
  quantize_expert_rows(dgate_ups, call.in(In::start).as<std::int32_t>(), call);
}

std::size_t workspace(InputTypes, std::span<const Type> outputs, const Attributes&) {
  return static_cast<std::size_t>(outputs[QuantizeOut::rows].elements()) * sizeof(BFloat16);
}

}  // namespace

void register_quantize_experts_swiglu_cpu(KernelRegistry& registry) {
  registry.add("quantize_experts_swiglu", DeviceKind::kCpu, {forward, workspace});
  registry.add("quantize_experts_swiglu_backward", DeviceKind::kCpu, {backward, workspace});
}

}  // namespace hone
