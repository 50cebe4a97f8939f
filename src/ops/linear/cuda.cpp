// Linear layer on a GPU by cuBLASLt. All rows of the capacity are multiplied, because only the device knows how many
// are in use; rows past the count are finite in x and exactly zero in dy, so that they add nothing to gradients.
#include "backend/cuda/check.h"
#include "backend/cuda/device.h"
#include "ops/accumulated.h"
#include "ops/linear/few_rows_cuda.h"
#include "ops/linear/linear.h"
#include "ops/linear/mixed_cuda.h"
#include "ops/linear/products.h"
#include "ops/registry.h"

namespace hone {
namespace {

// Row stride, in elements, of the GEMM's result. If the rows of y are not aligned as kCublasAlignment requires
// (cublas.h), the result has padded rows in scratch memory and is copied to y.
std::int64_t gemm_row_stride(const Type& x, const Type& y) {
  const std::int64_t n = y.row_size();
  if (x.dtype != DType::kBf16 || n % kCublasAlignment == 0) return n;
  return (n + kLogitStride - 1) / kLogitStride * kLogitStride;
}

// Runs the GEMM on the call's first two inputs. args.c is the result, or null for the call's output.
void multiply(const KernelCall& call, GemmArgs args) {
  if (args.a_type != args.b_type) {
    // An f32 gradient with a bf16 operand: cuBLASLt needs operands of one dtype.
    std::byte* narrowed = call.workspace.data() + kCublasWorkspace;
    narrow_cuda(call, call.in(LinearFactorsIn::a).as<float>(), narrowed, call.in(LinearFactorsIn::a).elements());
    args.a = narrowed;
    args.a_type = args.b_type;
  } else {
    args.a = call.in(LinearFactorsIn::a).data;
  }
  args.b = call.in(LinearFactorsIn::b).data;
  if (args.c == nullptr) args.c = call.out(0).data;
  args.workspace = call.workspace.first(kCublasWorkspace);
  auto& device = static_cast<CudaDevice&>(*call.device);
  device.cublas().gemm(args, device.stream());
}

void forward(const KernelCall& call) {
  const TensorView& y = call.out(0);
  const TensorView& bias = call.in(LinearIn::bias);
  GemmArgs args = linear_product(*call.in(LinearIn::x).type, *call.in(LinearIn::weight).type, *y.type);
  const bool fused = bias && bias.dtype() == y.dtype();
  if (fused) {
    args.bias = bias.data;
    args.bias_type = bias.dtype();
  }
  GemmArgs few = args;
  few.a = call.in(LinearIn::x).data;
  few.b = call.in(LinearIn::weight).data;
  few.c = y.data;
  const bool done =
      launch_few_rows(few, call.in(LinearIn::weight).constant, static_cast<CudaDevice&>(*call.device).stream());
  const std::int64_t stride = gemm_row_stride(*call.in(LinearIn::x).type, *y.type);
  if (done) {
    // All rows are there.
  } else if (stride == y.row_size()) {
    multiply(call, args);
  } else {
    args.c = call.workspace.data() + kCublasWorkspace;
    args.ldc = stride;
    multiply(call, args);
    const std::size_t size = size_of(y.dtype());
    const std::size_t bytes = static_cast<std::size_t>(y.row_size()) * size;
    check_cuda(cudaMemcpy2DAsync(y.data, bytes, args.c, static_cast<std::size_t>(stride) * size, bytes,
                                 static_cast<std::size_t>(y.capacity()), cudaMemcpyDeviceToDevice,
                                 static_cast<CudaDevice&>(*call.device).stream()),
               "cudaMemcpy2DAsync");
  }
  if (bias && !fused) add_bias_cuda(call, y.as<float>(), bias.data, y.capacity(), y.row_size());
}

void input_gradient(const KernelCall& call) {
  multiply(call, linear_input_product(*call.in(LinearInputGradientIn::dy).type,
                                      *call.in(LinearInputGradientIn::weight).type, *call.out(0).type));
}

void weight_gradient(const KernelCall& call) {
  GemmArgs args = linear_weight_product(*call.in(LinearWeightGradientIn::dy).type,
                                        *call.in(LinearWeightGradientIn::x).type, *call.out(0).type);
  args.accumulated = accumulated_flag(call, LinearWeightGradientIn::accumulated);
  multiply(call, args);
}

std::size_t forward_workspace(InputTypes inputs, std::span<const Type> outputs, const Attributes&) {
  const std::int64_t stride = gemm_row_stride(required(inputs, LinearIn::x, "linear"), outputs[0]);
  if (stride == outputs[0].row_size()) return kCublasWorkspace;
  return kCublasWorkspace + static_cast<std::size_t>(outputs[0].rows() * stride) * size_of(outputs[0].dtype);
}

std::size_t workspace(InputTypes inputs, std::span<const Type>, const Attributes&) {
  const Type& first = required(inputs, LinearFactorsIn::a, "linear");
  const bool mixed = first.dtype != required(inputs, LinearFactorsIn::b, "linear").dtype;
  return kCublasWorkspace + (mixed ? static_cast<std::size_t>(first.elements()) * sizeof(BFloat16) : 0);
}

}  // namespace

void register_linear_bias_gradient_cuda(KernelRegistry& registry);

void register_linear_cuda(KernelRegistry& registry) {
  registry.add("linear", DeviceKind::kCuda, {forward, forward_workspace});
  registry.add("linear_input_gradient", DeviceKind::kCuda, {input_gradient, workspace});
  registry.add("linear_weight_gradient", DeviceKind::kCuda, {weight_gradient, workspace});
  register_linear_bias_gradient_cuda(registry);
}

}  // namespace hone
