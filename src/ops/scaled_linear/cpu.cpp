// Scaled products on the CPU. The operands are numbers of bf16 exactly, so these are the products of bf16 that a linear
// layer has, in its order of sums (backend/cpu/gemm.h).
#include "backend/cpu/gemm.h"
#include "backend/cpu/gemm_fp8.h"
#include "core/float8.h"
#include "core/parallel.h"
#include "ops/accumulated.h"
#include "ops/linear/products.h"
#include "ops/quantize/rows.h"
#include "ops/registry.h"
#include "ops/rows.h"
#include "ops/scaled_linear/scaled_linear.h"

namespace hone {
namespace {

GemmArgs scaled_linear_forward_product(const Type& x, const Type& weight, const Type& y) {
  return linear_product(as_bf16(x), weight, y);
}

// dW += dy^T x of the transposed copies [n, rows] and [k, rows].
GemmArgs gradient_product(const Type& dy, const Type& x, const Type& dweight) {
  GemmArgs args = linear_product(as_bf16(dy), as_bf16(x), dweight);
  args.accumulate = true;
  return args;
}

void scaled_linear_forward(const KernelCall& call) {
  using In = ScaledLinearIn;
  const TensorView& x = call.in(In::x);
  const TensorView& scale = call.in(In::weight_scale);
  GemmArgs args = scaled_linear_forward_product(*x.type, *call.in(In::weight).type, *call.out(0).type);
  auto* widened = reinterpret_cast<BFloat16*>(call.workspace.data());
  widen_quantized_rows(x, call.in(In::x_scale), x.rows(), widened);
  args.m = x.rows();
  args.a = widened;
  args.b = call.in(In::weight).data;
  args.c = call.out(0).data;
  if (call.in(In::bias)) {
    args.bias = call.in(In::bias).data;
    args.bias_type = DType::kBf16;
  }
  args.workspace = call.workspace.subspan(bf16_bytes(x.type->elements()));
  gemm_fp8(args, {.data = scale.as<float>(), .stride = scale.row_size()});
  zero_tail(call.out(0));
}

std::size_t scaled_linear_forward_workspace(InputTypes inputs, std::span<const Type> outputs, const Attributes&) {
  const Type& x = required(inputs, ScaledLinearIn::x, "scaled_linear");
  const Type& weight = required(inputs, ScaledLinearIn::weight, "scaled_linear");
  return bf16_bytes(x.elements()) +
         gemm_fp8_workspace_bytes(scaled_linear_forward_product(x, weight, outputs[0]), thread_count());
}

void scaled_linear_weight_gradient(const KernelCall& call) {
  const TensorView& dy = call.in(ScaledLinearWeightGradientIn::dy);
  const TensorView& x = call.in(ScaledLinearWeightGradientIn::x);
  GemmArgs args = gradient_product(*dy.type, *x.type, *call.out(0).type);
  args.accumulate = adds_to_gradient(call, ScaledLinearWeightGradientIn::accumulated);
  std::byte* const scratch = call.workspace.data();
  const std::size_t dy_bytes = bf16_bytes(dy.type->elements());
  widen_quantized_rows(dy, call.in(ScaledLinearWeightGradientIn::dy_scale), dy.rows(),
                       reinterpret_cast<BFloat16*>(scratch));
  widen_quantized_blocks(x, call.in(ScaledLinearWeightGradientIn::x_scale),
                         reinterpret_cast<BFloat16*>(scratch + dy_bytes));
  args.a = scratch;
  args.b = scratch + dy_bytes;
  args.c = call.out(0).data;
  args.workspace = call.workspace.subspan(dy_bytes + bf16_bytes(x.type->elements()));
  gemm(args);
}

std::size_t gradient_workspace(InputTypes inputs, std::span<const Type> outputs, const Attributes&) {
  const Type& dy = required(inputs, ScaledLinearWeightGradientIn::dy, "scaled_linear_weight_gradient");
  const Type& x = required(inputs, ScaledLinearWeightGradientIn::x, "scaled_linear_weight_gradient");
  return bf16_bytes(dy.elements()) + bf16_bytes(x.elements()) +
         gemm_workspace_bytes(gradient_product(dy, x, outputs[0]), thread_count());
}

}  // namespace

void register_scaled_linear_cpu(KernelRegistry& registry) {
  registry.add("scaled_linear", DeviceKind::kCpu, {scaled_linear_forward, scaled_linear_forward_workspace});
  registry.add("scaled_linear_weight_gradient", DeviceKind::kCpu, {scaled_linear_weight_gradient, gradient_workspace});
}

}  // namespace hone
