#include "ops/linear_swiglu/parts.h"

#include "ops/linear/linear.h"
#include "ops/linear_swiglu/linear_swiglu.h"

namespace hone {
namespace {

Type gate_up_type(const Type& x, const Type& weight) { return {x.dtype, {x.shape[0], weight.shape[0]}}; }

}  // namespace

void run_linear_and_swiglu(const KernelCall& call) {
  const DeviceKind device = call.device->kind();
  const Type type = gate_up_type(*call.in(LinearSwigluIn::x).type, *call.in(LinearSwigluIn::weight).type);
  const std::size_t at = call.workspace.size() - align_up(type.bytes());
  TensorView gate_up = call.out(0);
  gate_up.data = call.workspace.data() + at;
  gate_up.type = &type;
  const Attributes attributes = LinearAttributes{};
  KernelCall product = call;
  product.outputs = {&gate_up, 1};
  product.attributes = &attributes;
  product.workspace = call.workspace.first(at);
  kernel_registry().get("linear", device).run(product);
  KernelCall gate = call;
  gate.inputs = {&gate_up, 1};
  kernel_registry().get("swiglu", device).run(gate);
}

std::size_t linear_and_swiglu_workspace(DeviceKind device, InputTypes inputs) {
  const Type type = gate_up_type(required(inputs, LinearSwigluIn::x, "linear_swiglu"),
                                 required(inputs, LinearSwigluIn::weight, "linear_swiglu"));
  const auto& product = kernel_registry().get_for_planning("linear", device).workspace;
  const std::size_t bytes = product ? product(inputs, {&type, 1}, LinearAttributes{}) : 0;
  return align_up(bytes) + align_up(type.bytes());
}

}  // namespace hone
