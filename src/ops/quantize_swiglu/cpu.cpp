// The rows in bf16 go through scratch memory.
#include "ops/quantize/rows.h"
#include "ops/quantize_swiglu/quantize_swiglu.h"
#include "ops/quantize_swiglu/rows.h"
#include "ops/registry.h"

namespace hone {
namespace {

void quantize_swiglu_forward(const KernelCall& call) {
  const TensorView& gate_up = call.in(0);
  quantize_rows(swiglu_rows(call, gate_up), gate_up.rows(), quantized_views(call));
}

void quantize_swiglu_backward(const KernelCall& call) {
  using In = QuantizeSwigluBackwardIn;
  const TensorView& dy = call.in(In::dy);
  quantize_rows(swiglu_gradient_rows(call, dy, call.in(In::gate_up)), dy.rows(), quantized_views(call));
}

}  // namespace

void register_quantize_swiglu_cpu(KernelRegistry& registry) {
  registry.add("quantize_swiglu", DeviceKind::kCpu, {quantize_swiglu_forward, quantize_swiglu_workspace});
  registry.add("quantize_swiglu_backward", DeviceKind::kCpu, {quantize_swiglu_backward, quantize_swiglu_workspace});
}

}  // namespace hone
