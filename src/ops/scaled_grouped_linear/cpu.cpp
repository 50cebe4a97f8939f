// Products of experts in e4m3 on the CPU. The operands are numbers of bf16 exactly, so these are the products of bf16
// that grouped_linear has, in its order of sums.
#include <algorithm>
#include <string_view>

#include "backend/cpu/gemm.h"
#include "backend/cpu/gemm_fp8.h"
#include "core/float8.h"
#include "core/parallel.h"
#include "ops/accumulated.h"
#include "ops/linear/products.h"
#include "ops/quantize/rows.h"
#include "ops/registry.h"
#include "ops/rows.h"
#include "ops/scaled_grouped_linear/scaled_grouped_linear.h"

namespace hone {
namespace {

constexpr std::string_view kName = "scaled_grouped_linear";

// The type of one expert's matrix.
Type scaled_matrix_of(DType dtype, const Type& weight, const Attributes& attributes) {
  return {dtype, {weight.shape[0].size / attributes.as<GroupedLinearAttributes>().experts, weight.shape[1]}};
}

GemmArgs scaled_grouped_linear_forward_product(const Type& x, const Type& weight, const Type& y,
                                               const Attributes& attributes) {
  return linear_product(as_bf16(x), scaled_matrix_of(DType::kU8, weight, attributes), y);
}

GemmArgs scaled_grouped_linear_input_product(const Type& dy, const Type& weight, const Type& dx,
                                             const Attributes& attributes) {
  return linear_input_product(as_bf16(dy), scaled_matrix_of(DType::kBf16, weight, attributes), dx);
}

// Calls multiply(args, e) for each expert that has rows, with the expert's part of the widened rows and of the result,
// and clears the rows of the result that no expert has.
template <class Multiply>
void for_scaled_experts(const KernelCall& call, GemmArgs args, const Multiply& multiply) {
  const TensorView& rows = call.in(ScaledGroupedLinearIn::x);
  const TensorView& out = call.out(0);
  const auto* start = call.in(ScaledGroupedLinearIn::start).as<std::int32_t>();
  auto* widened = reinterpret_cast<BFloat16*>(call.workspace.data());
  widen_quantized_rows(rows, call.in(ScaledGroupedLinearIn::x_scale), rows.rows(), widened);
  const std::int64_t experts = call.in(ScaledGroupedLinearIn::start).capacity() - 1;
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

void scaled_grouped_linear_forward(const KernelCall& call) {
  const TensorView& weight = call.in(ScaledGroupedLinearIn::weight);
  const TensorView& scale = call.in(ScaledGroupedLinearIn::weight_scale);
  GemmArgs product = scaled_grouped_linear_forward_product(*call.in(ScaledGroupedLinearIn::x).type, *weight.type,
                                                           *call.out(0).type, *call.attributes);
  product.workspace = call.workspace.subspan(bf16_bytes(call.in(ScaledGroupedLinearIn::x).type->elements()));
  const std::int64_t height = call.out(0).row_size();
  for_scaled_experts(call, product, [&](GemmArgs& args, std::int64_t e) {
    args.b = weight.as<std::uint8_t>() + e * height * weight.row_size();
    gemm_fp8(args, {.data = scales_of(scale, e, height), .stride = scale.row_size()});
  });
}

std::size_t scaled_grouped_linear_forward_workspace(InputTypes inputs, std::span<const Type> outputs,
                                                    const Attributes& attributes) {
  const Type& x = required(inputs, ScaledGroupedLinearIn::x, kName);
  return bf16_bytes(x.elements()) +
         gemm_fp8_workspace_bytes(
             scaled_grouped_linear_forward_product(x, required(inputs, ScaledGroupedLinearIn::weight, kName),
                                                   outputs[0], attributes),
             thread_count());
}

void scaled_grouped_linear_input_gradient(const KernelCall& call) {
  const TensorView& weight = call.in(ScaledGroupedLinearIn::weight);
  const TensorView& scale = call.in(ScaledGroupedLinearIn::weight_scale);
  const std::int64_t height = call.in(ScaledGroupedLinearIn::x).row_size();
  const std::int64_t k = weight.row_size();
  GemmArgs product = scaled_grouped_linear_input_product(*call.in(ScaledGroupedLinearIn::x).type, *weight.type,
                                                         *call.out(0).type, *call.attributes);
  const std::span<std::byte> scratch =
      call.workspace.subspan(bf16_bytes(call.in(ScaledGroupedLinearIn::x).type->elements()));
  auto* matrix = reinterpret_cast<BFloat16*>(scratch.data());
  product.b = matrix;
  product.workspace = scratch.subspan(bf16_bytes(height * k));
  for_scaled_experts(call, product, [&](GemmArgs& args, std::int64_t e) {
    const auto* bytes = weight.as<std::uint8_t>() + e * height * k;
    const float* scales = scales_of(scale, e, height);
    for_rows(height, k, [&](std::int64_t row) {
      dequantize_e4m3_row(bytes + row * k, scales + row / kScaleBlock * scale.row_size(), 0, k, matrix + row * k);
    });
    gemm(args);
  });
}

std::size_t input_workspace(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) {
  const Type& dy = required(inputs, ScaledGroupedLinearIn::x, kName);
  const Type& weight = required(inputs, ScaledGroupedLinearIn::weight, kName);
  return bf16_bytes(dy.elements()) + bf16_bytes(scaled_matrix_of(DType::kBf16, weight, attributes).elements()) +
         gemm_workspace_bytes(scaled_grouped_linear_input_product(dy, weight, outputs[0], attributes), thread_count());
}

// dW += dy^T x of the transposed copies, of all experts.
GemmArgs scaled_grouped_linear_weight_product(const Type& dy, const Type& x, const Type& dweight,
                                              const Attributes& attributes) {
  GemmArgs args = linear_product(as_bf16(dy), as_bf16(x), scaled_matrix_of(dweight.dtype, dweight, attributes));
  args.accumulate = true;
  return args;
}

void scaled_grouped_linear_weight_gradient(const KernelCall& call) {
  const TensorView& dy = call.in(ScaledGroupedWeightGradientIn::dy);
  const TensorView& x = call.in(ScaledGroupedWeightGradientIn::x);
  const TensorView& dweight = call.out(0);
  const auto* start = call.in(ScaledGroupedWeightGradientIn::start).as<std::int32_t>();
  GemmArgs args = scaled_grouped_linear_weight_product(*dy.type, *x.type, *dweight.type, *call.attributes);
  const std::size_t dy_bytes = bf16_bytes(dy.type->elements());
  auto* dys = reinterpret_cast<BFloat16*>(call.workspace.data());
  auto* xs = reinterpret_cast<BFloat16*>(call.workspace.data() + dy_bytes);
  widen_quantized_rows(dy, call.in(ScaledGroupedWeightGradientIn::dy_scale), dy.capacity(), dys);
  widen_quantized_blocks(x, call.in(ScaledGroupedWeightGradientIn::x_scale), xs);
  args.workspace = call.workspace.subspan(dy_bytes + bf16_bytes(x.type->elements()));
  args.accumulate = adds_to_gradient(call, ScaledGroupedWeightGradientIn::accumulated);
  const std::size_t matrix_bytes =
      static_cast<std::size_t>(dy.capacity() * dweight.row_size()) * size_of(dweight.dtype());
  std::int64_t first = 0;
  for (std::int64_t e = 0; e + 1 < call.in(ScaledGroupedWeightGradientIn::start).capacity(); ++e) {
    args.k = scale_blocks(start[e + 1] - start[e]) * kScaleBlock;
    args.a = dys + first;
    args.b = xs + first;
    args.c = dweight.data + static_cast<std::size_t>(e) * matrix_bytes;
    if (args.k > 0 || !args.accumulate) gemm(args);
    first += args.k;
  }
}

std::size_t weight_workspace(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) {
  const Type& dy = required(inputs, ScaledGroupedWeightGradientIn::dy, kName);
  const Type& x = required(inputs, ScaledGroupedWeightGradientIn::x, kName);
  return bf16_bytes(dy.elements()) + bf16_bytes(x.elements()) +
         gemm_workspace_bytes(scaled_grouped_linear_weight_product(dy, x, outputs[0], attributes), thread_count());
}

}  // namespace

void register_scaled_grouped_linear_cpu(KernelRegistry& registry) {
  registry.add("scaled_grouped_linear", DeviceKind::kCpu,
               {scaled_grouped_linear_forward, scaled_grouped_linear_forward_workspace});
  registry.add("scaled_grouped_linear_input_gradient", DeviceKind::kCpu,
               {scaled_grouped_linear_input_gradient, input_workspace});
  registry.add("scaled_grouped_linear_weight_gradient", DeviceKind::kCpu,
               {scaled_grouped_linear_weight_gradient, weight_workspace});
}

}  // namespace hone
