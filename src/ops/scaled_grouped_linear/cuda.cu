// Launches the products of experts in e4m3 (wgmma_scaled.cuh).
#include "core/error.h"
#include "ops/accumulated.h"
#include "ops/cuda_kernel.cuh"
#include "ops/registry.h"
#include "ops/scaled_grouped_linear/byte_boxes.cuh"
#include "ops/scaled_grouped_linear/scaled_grouped_linear.h"
#include "ops/scaled_grouped_linear/wgmma_added.cuh"
#include "ops/scaled_grouped_linear/wgmma_scaled.cuh"

namespace hone {
namespace {

using In = ScaledGroupedLinearIn;
using GradientIn = ScaledGroupedWeightGradientIn;

template <class... Parameters>
void launch(void (*kernel)(Parameters...), std::size_t shared_bytes, cudaStream_t stream,
            const Parameters&... parameters) {
  cudaFuncAttributes attributes{};
  check_cuda(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  if (attributes.maxThreadsPerBlock < kGroupedThreads) {  // built for a device without wgmma
    throw Error("fp8", text_of(cuda_device().name(), " cannot multiply experts in e4m3; compute capability 9.0 can"),
                "remove fp8");
  }
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
             "cudaFuncSetAttribute");
  launch_dependent({static_cast<unsigned>(cuda_device().sm_count()), kGroupedThreads, shared_bytes}, stream, kernel,
                   parameters...);
  check_launch("scaled_product");
}
template <class Plan>
void launch(const ScaledMaps& maps, const ScaledArgs& args, cudaStream_t stream) {
  launch(scaled_product<Plan>, Plan::kBytes, stream, maps, args);
}

// Returns true if tokens are the rows of tiles (wgmma_tokens.cuh), as of experts with so many that few are filled up.
bool tokens_as_rows(const KernelCall& call) {
  constexpr std::int64_t kFewest = 64;  // tokens of an expert
  const TensorView& x = call.in(In::x);
  return x.capacity() >= kFewest * call.attributes_as<GroupedLinearAttributes>().experts &&
         ExpertTokensPlan::takes_depth(x.row_size());
}

template <GroupedProduct kProduct>
void multiply(const KernelCall& call) {
  const TensorView& rows = call.in(In::x);
  const TensorView& scale = call.in(In::weight_scale);
  const TensorView& token_scale = call.in(In::x_scale);
  const TensorView& out = call.out(0);
  if (out.elements() == 0) return;
  const CUtensorMap to = row_boxes(out.data, out.capacity(), out.row_size(), 1, out.row_size(), 64);
  const ScaledArgs args{.grouped = {.start = call.in(In::start).as<std::int32_t>(),
                                    .experts = static_cast<int>(call.attributes_as<GroupedLinearAttributes>().experts),
                                    .rows = static_cast<int>(out.row_size()),
                                    .columns = 0,
                                    .depth = static_cast<int>(rows.row_size()),
                                    .capacity = out.capacity(),
                                    .out = out.data},
                        .weight_scale = scale.as<float>(),
                        .weight_stride = scale.row_size(),
                        .token_scale = token_scale.as<float>(),
                        .token_stride = token_scale.row_size()};
  if (kProduct == GroupedProduct::kForward && tokens_as_rows(call)) {
    const TokensMaps maps{.weight = byte_boxes(call.in(In::weight), ExpertTokensPlan::kWeightRows),
                          .tokens = byte_boxes(rows, ExpertTokensPlan::kColumns),
                          .out = to,
                          .weight_scale = scale_boxes(scale, scale.row_size()),
                          .token_scale = scale_boxes(token_scale, ExpertTokensPlan::kScaleBox)};
    return launch(tokens_product<ExpertTokensPlan, ExpertTokensResult>, ExpertTokensPlan::kBytes, stream_of(call), maps,
                  args, ExpertTokensResult{});
  }
  const ScaledMaps maps{
      .weight = byte_boxes(call.in(In::weight), kScaledDepth), .tokens = byte_boxes(rows, kTokenBox), .out = to};
  launch<ScaledPlan<kProduct>>(maps, args, stream_of(call));
}

// dW += dy^T x, whose tiles have columns of dy as rows.
template <class Plan>
void launch_weight_gradient(const KernelCall& call) {
  const TensorView& dy = call.in(GradientIn::dy);
  const TensorView& x = call.in(GradientIn::x);
  const TensorView& scale = call.in(GradientIn::x_scale);
  const TensorView& token_scale = call.in(GradientIn::dy_scale);
  const TensorView& out = call.out(0);
  const std::int64_t experts = call.attributes_as<GroupedLinearAttributes>().experts;
  const bool narrow = out.dtype() == DType::kBf16;
  const CUtensorMap tokens = byte_boxes(dy, Plan::kColumns);
  const TokensMaps maps{.weight = byte_boxes(x, Plan::kWeightRows),
                        .tokens = tokens,
                        .out = narrow ? row_boxes(out.data, experts, out.capacity() / experts * out.row_size(),
                                                  out.capacity() / experts, out.row_size(), 1, 64)
                                      : tokens,  // not used
                        .weight_scale = scale_boxes(scale, kOwnScaleBox, Plan::kWeightBlocks),
                        .token_scale = scale_boxes(token_scale, Plan::kScaleBox)};
  const ScaledArgs args{.grouped = {.start = call.in(GradientIn::start).as<std::int32_t>(),
                                    .experts = static_cast<int>(experts),
                                    .rows = static_cast<int>(x.capacity()),
                                    .columns = static_cast<int>(dy.capacity()),
                                    .depth = 0,
                                    .capacity = 0,
                                    .out = out.data,
                                    .accumulated = accumulated_flag(call, GradientIn::accumulated)},
                        .weight_scale = scale.as<float>(),
                        .weight_stride = scale.row_size(),
                        .token_scale = token_scale.as<float>(),
                        .token_stride = token_scale.row_size()};
  if (narrow) {
    launch(tokens_product<Plan, AddedResult>, Plan::kBytes, stream_of(call), maps, args, AddedResult{});
  } else {
    launch(tokens_product<Plan, WideAddedResult>, Plan::kBytes, stream_of(call), maps, args, WideAddedResult{});
  }
}
void weight_gradient(const KernelCall& call) {
  const std::int64_t rows = call.in(GradientIn::dy).capacity();
  const std::int64_t columns = call.in(GradientIn::x).capacity();
  if (call.out(0).elements() == 0 || rows == 0 || columns == 0) return;
  // Elements that a tile's time is spent on, of a matrix: those of both plans take about as long (docs/lab-notes.md).
  const auto area = [&](std::int64_t height, std::int64_t width) {
    return ceil_div(rows, height) * height * ceil_div(columns, width) * width;
  };
  const bool tall = area(TallGradientPlan::kColumns, TallGradientPlan::kWeightRows) <=
                    area(WideGradientPlan::kColumns, WideGradientPlan::kWeightRows);
  tall ? launch_weight_gradient<TallGradientPlan>(call) : launch_weight_gradient<WideGradientPlan>(call);
}

}  // namespace

void register_scaled_grouped_linear_cuda(KernelRegistry& registry) {
  registry.add("scaled_grouped_linear", DeviceKind::kCuda, {multiply<GroupedProduct::kForward>, {}});
  registry.add("scaled_grouped_linear_input_gradient", DeviceKind::kCuda, {multiply<GroupedProduct::kInput>, {}});
  registry.add("scaled_grouped_linear_weight_gradient", DeviceKind::kCuda, {weight_gradient, {}});
}

}  // namespace hone
