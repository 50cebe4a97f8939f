// All rows of the capacity are multiplied: those past the count are finite in x and exactly zero in dy.
#include "backend/cuda/device.h"
#include "ops/linear/linear.h"
#include "ops/linear/mixed_cuda.h"
#include "ops/linear/products.h"
#include "ops/registry.h"

namespace hone {
namespace {

void multiply(const KernelCall& call, GemmArgs args) {
  if (args.a_type != args.b_type) {
    // A gradient in f32 beside operands of bf16: the library multiplies operands of one type.
    std::byte* narrowed = call.workspace.data() + kCublasWorkspace;
    narrow_cuda(call, call.in(0).as<float>(), narrowed, call.in(0).elements());
    args.a = narrowed;
    args.a_type = args.b_type;
  } else {
    args.a = call.in(0).data;
  }
  args.b = call.in(1).data;
  args.c = call.out(0).data;
  args.workspace = call.workspace.first(kCublasWorkspace);
  auto& device = static_cast<CudaDevice&>(*call.device);
  device.cublas().gemm(args, device.stream());
}

void forward(const KernelCall& call) {
  const TensorView& y = call.out(0);
  const TensorView& bias = call.in(2);
  GemmArgs args = linear_product(*call.in(0).type, *call.in(1).type, *y.type);
  const bool fused = bias && bias.dtype() == y.dtype();
  if (fused) {
    args.bias = bias.data;
    args.bias_type = bias.dtype();
  }
  multiply(call, args);
  if (bias && !fused) add_bias_cuda(call, y.as<float>(), bias.data, y.capacity(), y.row_size());
}

void input_gradient(const KernelCall& call) {
  multiply(call, linear_input_product(*call.in(0).type, *call.in(1).type, *call.out(0).type));
}

void weight_gradient(const KernelCall& call) {
  multiply(call, linear_weight_product(*call.in(0).type, *call.in(1).type, *call.out(0).type));
}

std::size_t workspace(InputTypes inputs, std::span<const Type>, const Attributes&) {
  const Type& first = required(inputs, 0, "linear");
  const bool mixed = first.dtype != required(inputs, 1, "linear").dtype;
  return kCublasWorkspace + (mixed ? static_cast<std::size_t>(first.elements()) * sizeof(BFloat16) : 0);
}

}  // namespace

void register_linear_bias_gradient_cuda(KernelRegistry& registry);

void register_linear_cuda(KernelRegistry& registry) {
  registry.add("linear", DeviceKind::cuda, {forward, workspace});
  registry.add("linear_input_gradient", DeviceKind::cuda, {input_gradient, workspace});
  registry.add("linear_weight_gradient", DeviceKind::cuda, {weight_gradient, workspace});
  register_linear_bias_gradient_cuda(registry);
}

}  // namespace hone
