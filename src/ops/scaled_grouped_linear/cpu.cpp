// Products of experts in e4m3 on the CPU. The operands are numbers of bf16 exactly, so these are the products of bf16
// that grouped_linear has, in its order of sums.
#include <algorithm>
#include <string_view>

#include "backend/cpu/gemm.h"
#include "backend/cpu/gemm_fp8.h"
#include "core/float8.h"
#include "core/parallel.h"
#include "ops/linear/products.h"
#include "ops/quantize/rows.h"
#include "ops/registry.h"
#include "ops/rows.h"
#include "ops/scaled_grouped_linear/scaled_grouped_linear.h"

namespace hone {
namespace {

using In = ScaledGroupedLinearIn;
using GradientIn = ScaledGroupedWeightGradientIn;

constexpr std::string_view kName = "scaled_grouped_linear";

// The type of one expert's matrix.
Type matrix_of(DType dtype, const Type& weight, const Attributes& attributes) {
  return {dtype, {weight.shape[0].size / attributes.as<GroupedLinearAttributes>().experts, weight.shape[1]}};
}

GemmArgs forward_product(const Type& x, const Type& weight, const Type& y, const Attributes& attributes) {
  return linear_product(as_bf16(x), matrix_of(DType::kU8, weight, attributes), y);
}

GemmArgs input_product(const Type& dy, const Type& weight, const Type& dx, const Attributes& attributes) {
  return linear_input_product(as_bf16(dy), matrix_of(DType::kBf16, weight, attributes), dx);
}

// Calls multiply(args, e) for each expert that has rows, with the expert's part of the widened rows and of the result,
// and clears the rows of the result that no expert has.
template <class Multiply>
void for_experts(const KernelCall& call, GemmArgs args, const Multiply& multiply) {
  const TensorView& rows = call.in(In::x);
  const TensorView& out = call.out(0);
  const auto* start = call.in(In::start).as<std::int32_t>();
  auto* widened = reinterpret_cast<BFloat16*>(call.workspace.data());
  widen_quantized_rows(rows, call.in(In::x_scale), rows.rows(), widened);
  const std::int64_t experts = call.in(In::start).capacity() - 1;
  for (std::int64_t e = 0; e < experts; ++e) {
    if (start[e + 1] == start[e]) continue;
    args.m = start[e + 1] - start[e];
    args.a = widened + start[e] * rows.row_size();
    args.c = out.as<BFloat16>() + start[e] * out.row_size();
    multiply(args, e);
  }
  const std::int64_t used = start[experts] * out.row_size();
  std::fill(out.as<BFloat16>() + used, out.as<BFloat16>() + out.capacity() * out.row_size(), BFloat16());
}

// The scales of an expert's matrix of `height` rows.
const float* scales_of(const TensorView& scale, std::int64_t e, std::int64_t height) {
  return scale.as<float>() + e * height / kScaleBlock * scale.row_size();
}

void forward(const KernelCall& call) {
  const TensorView& weight = call.in(In::weight);
  const TensorView& scale = call.in(In::weight_scale);
  GemmArgs product = forward_product(*call.in(In::x).type, *weight.type, *call.out(0).type, *call.attributes);
  product.workspace = call.workspace.subspan(bf16_bytes(call.in(In::x).type->elements()));
  const std::int64_t height = call.out(0).row_size();
  for_experts(call, product, [&](GemmArgs& args, std::int64_t e) {
    args.b = weight.as<std::uint8_t>() + e * height * weight.row_size();
    gemm_fp8(args, {.data = scales_of(scale, e, height), .stride = scale.row_size()});
  });
}

std::size_t forward_workspace(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) {
  const Type& x = required(inputs, In::x, kName);
  return bf16_bytes(x.elements()) +
         gemm_fp8_workspace_bytes(forward_product(x, required(inputs, In::weight, kName), outputs[0], attributes),
                                  thread_count());
}

void input_gradient(const KernelCall& call) {
  const TensorView& weight = call.in(In::weight);
  const TensorView& scale = call.in(In::weight_scale);
  const std::int64_t height = call.in(In::x).row_size();
  const std::int64_t k = weight.row_size();
  GemmArgs product = input_product(*call.in(In::x).type, *weight.type, *call.out(0).type, *call.attributes);
  const std::span<std::byte> scratch = call.workspace.subspan(bf16_bytes(call.in(In::x).type->elements()));
  auto* matrix = reinterpret_cast<BFloat16*>(scratch.data());
  product.b = matrix;
  product.workspace = scratch.subspan(bf16_bytes(height * k));
  for_experts(call, product, [&](GemmArgs& args, std::int64_t e) {
    const auto* bytes = weight.as<std::uint8_t>() + e * height * k;
    const float* scales = scales_of(scale, e, height);
    for_rows(height, k, [&](std::int64_t row) {
      dequantize_e4m3_row(bytes + row * k, scales + row / kScaleBlock * scale.row_size(), 0, k, matrix + row * k);
    });
    gemm(args);
  });
}

std::size_t input_workspace(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) {
  const Type& dy = required(inputs, In::x, kName);
  const Type& weight = required(inputs, In::weight, kName);
  return bf16_bytes(dy.elements()) + bf16_bytes(matrix_of(DType::kBf16, weight, attributes).elements()) +
         gemm_workspace_bytes(input_product(dy, weight, outputs[0], attributes), thread_count());
}

// dW += dy^T x of the transposed copies, of all experts.
GemmArgs weight_product(const Type& dy, const Type& x, const Type& dweight, const Attributes& attributes) {
  GemmArgs args = linear_product(as_bf16(dy), as_bf16(x), matrix_of(dweight.dtype, dweight, attributes));
  args.accumulate = true;
  return args;
}

void weight_gradient(const KernelCall& call) {
  const TensorView& dy = call.in(GradientIn::dy);
  const TensorView& x = call.in(GradientIn::x);
  const TensorView& dweight = call.out(0);
  const auto* start = call.in(GradientIn::start).as<std::int32_t>();
  GemmArgs args = weight_product(*dy.type, *x.type, *dweight.type, *call.attributes);
  const std::size_t dy_bytes = bf16_bytes(dy.type->elements());
  auto* dys = reinterpret_cast<BFloat16*>(call.workspace.data());
  auto* xs = reinterpret_cast<BFloat16*>(call.workspace.data() + dy_bytes);
  widen_quantized_rows(dy, call.in(GradientIn::dy_scale), dy.capacity(), dys);
  widen_quantized_blocks(x, call.in(GradientIn::x_scale), xs);
  args.workspace = call.workspace.subspan(dy_bytes + bf16_bytes(x.type->elements()));
  const std::size_t matrix_bytes =
      static_cast<std::size_t>(dy.capacity() * dweight.row_size()) * size_of(dweight.dtype());
  std::int64_t first = 0;
  for (std::int64_t e = 0; e + 1 < call.in(GradientIn::start).capacity(); ++e) {
    args.k = scale_blocks(start[e + 1] - start[e]) * kScaleBlock;
    args.a = dys + first;
    args.b = xs + first;
    args.c = dweight.data + static_cast<std::size_t>(e) * matrix_bytes;
    if (args.k > 0) gemm(args);
    first += args.k;
  }
}

std::size_t weight_workspace(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) {
  const Type& dy = required(inputs, GradientIn::dy, kName);
  const Type& x = required(inputs, GradientIn::x, kName);
  return bf16_bytes(dy.elements()) + bf16_bytes(x.elements()) +
         gemm_workspace_bytes(weight_product(dy, x, outputs[0], attributes), thread_count());
}

}  // namespace

void register_scaled_grouped_linear_cpu(KernelRegistry& registry) {
  registry.add("scaled_grouped_linear", DeviceKind::kCpu, {forward, forward_workspace});
  registry.add("scaled_grouped_linear_input_gradient", DeviceKind::kCpu, {input_gradient, input_workspace});
  registry.add("scaled_grouped_linear_weight_gradient", DeviceKind::kCpu, {weight_gradient, weight_workspace});
}

}  // namespace hone
