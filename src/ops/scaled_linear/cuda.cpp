// Scaled products on a GPU: of any rows by own kernels, others by own kernels or by cuBLASLt, whichever takes less
// time; the bits are the same. There all rows of the capacity are multiplied; those past the count are 0 in the
// operands (ops/quantize), so that they add nothing to gradients.
#include "backend/cuda/device.h"
#include "backend/cuda/scaled_gemm.h"
#include "ops/accumulated.h"
#include "ops/registry.h"
#include "ops/scaled_linear/dense_cuda.h"
#include "ops/scaled_linear/rows_cuda.h"
#include "ops/scaled_linear/scaled_linear.h"

namespace hone {
namespace {

using GradientIn = ScaledLinearWeightGradientIn;

void multiply(const KernelCall& call, ScaledGemmArgs args) {
  args.c = call.out(0).data;
  args.c_type = call.out(0).dtype();
  args.workspace = call.workspace.first(kCublasWorkspace);
  auto& device = static_cast<CudaDevice&>(*call.device);
  const DenseChoice choice = dense_choice(args, device.sm_count());
  const bool tried = choice.time <= cublas_time(args, device.sm_count());
  if (tried && launch_dense(args, choice.tiles, {}, device)) return;
  device.cublas().scaled_gemm(args, device.stream());
}

void forward(const KernelCall& call) {
  using In = ScaledLinearIn;
  if (call.attributes_as<ScaledLinearAttributes>().any_rows) {
    return launch_scaled_rows(call, static_cast<CudaDevice&>(*call.device).stream());
  }
  const TensorView& x = call.in(In::x);
  const TensorView& weight = call.in(In::weight);
  const TensorView& bias = call.in(In::bias);
  multiply(call, {.m = x.capacity(),
                  .n = weight.capacity(),
                  .k = x.row_size(),
                  .a = x.as<std::uint8_t>(),
                  .a_scale = call.in(In::x_scale).as<float>(),
                  .b = weight.as<std::uint8_t>(),
                  .b_scale = call.in(In::weight_scale).as<float>(),
                  .bias = bias ? bias.data : nullptr});
}

void weight_gradient(const KernelCall& call) {
  const TensorView& dy = call.in(GradientIn::dy);
  const TensorView& x = call.in(GradientIn::x);
  multiply(call, {.m = dy.capacity(),
                  .n = x.capacity(),
                  .k = x.row_size(),
                  .a = dy.as<std::uint8_t>(),
                  .a_scale = call.in(GradientIn::dy_scale).as<float>(),
                  .b = x.as<std::uint8_t>(),
                  .b_scale = call.in(GradientIn::x_scale).as<float>(),
                  .accumulate = true,
                  .accumulated = accumulated_flag(call, GradientIn::accumulated)});
}

std::size_t workspace(InputTypes, std::span<const Type>, const Attributes&) { return kCublasWorkspace; }

}  // namespace

void register_scaled_linear_cuda(KernelRegistry& registry) {
  registry.add("scaled_linear", DeviceKind::kCuda, {forward, workspace});
  registry.add("scaled_linear_weight_gradient", DeviceKind::kCuda, {weight_gradient, workspace});
}

}  // namespace hone
