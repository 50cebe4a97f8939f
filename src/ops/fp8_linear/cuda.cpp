// Linear layer with FP8 weights on a GPU. Few rows stream the weights as they are (fp8_rows.cuh). For other shapes
// and devices the weights are converted to bf16 in scratch memory, some rows at a time, and multiplied as bf16 weights
// are.
#include <algorithm>

#include "backend/cuda/check.h"
#include "backend/cuda/device.h"
#include "ops/fp8_linear/fp8_cuda.h"
#include "ops/fp8_linear/fp8_linear.h"
#include "ops/linear/few_rows_cuda.h"
#include "ops/linear/products.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr std::int64_t kConvertedBytes = std::int64_t{256} << 20;  // of weights in bf16 at a time
constexpr std::int64_t kRowUnit = 256;

// Rows of W that are converted at a time.
std::int64_t converted_rows(std::int64_t n, std::int64_t k) {
  const std::int64_t most = std::max<std::int64_t>(kConvertedBytes / 2 / std::max<std::int64_t>(k, 1), 1);
  const std::int64_t rounded = std::max(most / kRowUnit * kRowUnit, kRowUnit);
  if (n <= rounded) return n;
  const std::int64_t parts = (n + rounded - 1) / rounded;
  return ((n + parts - 1) / parts + kRowUnit - 1) / kRowUnit * kRowUnit;
}

// Row stride of the result of the GEMM in elements: padded in scratch memory if n is not aligned, as in linear().
std::int64_t result_stride(std::int64_t n) {
  return n % kCublasAlignment == 0 ? n : (n + kLogitStride - 1) / kLogitStride * kLogitStride;
}

std::size_t converted_bytes(std::int64_t n, std::int64_t k) {
  const auto bytes = static_cast<std::size_t>(converted_rows(n, k) * k) * sizeof(BFloat16);
  return (bytes + 255) / 256 * 256;
}

std::size_t workspace(InputTypes inputs, std::span<const Type> outputs, const Attributes&) {
  const Type& weight = required(inputs, Fp8LinearIn::weight, "fp8_linear");
  const std::int64_t n = weight.shape[0].size;
  std::size_t bytes = kCublasWorkspace + converted_bytes(n, weight.shape[1].size);
  if (result_stride(n) != n) {
    bytes += static_cast<std::size_t>(outputs[0].rows() * result_stride(n)) * size_of(outputs[0].dtype);
  }
  return bytes;
}

void multiply_converted(const KernelCall& call, const Fp8Product& product) {
  GemmArgs args = product.args;
  auto& device = static_cast<CudaDevice&>(*call.device);
  std::byte* converted = call.workspace.data() + kCublasWorkspace;
  std::byte* const y = static_cast<std::byte*>(args.c);
  const std::int64_t stride = result_stride(args.n);
  const bool padded = stride != args.n;
  if (padded) {
    args.c = converted + converted_bytes(args.n, args.k);
    args.ldc = stride;
  }
  const std::int64_t step = converted_rows(args.n, args.k);
  for (std::int64_t row = 0; row < args.n; row += step) {
    GemmArgs part = args;
    part.n = std::min(step, args.n - row);
    dequantize_fp8(product, row, part.n, converted, device.stream());
    part.b = converted;
    part.b_type = DType::kBf16;
    part.ldb = args.k;
    part.c = static_cast<std::byte*>(args.c) + static_cast<std::size_t>(row) * size_of(args.c_type);
    if (args.bias != nullptr) part.bias = static_cast<const BFloat16*>(args.bias) + row;
    part.workspace = call.workspace.first(kCublasWorkspace);
    if (!launch_few_rows(part, false, device.stream())) device.cublas().gemm(part, device.stream());
  }
  if (!padded) return;
  const std::size_t size = size_of(args.c_type);
  const std::size_t bytes = static_cast<std::size_t>(args.n) * size;
  check_cuda(cudaMemcpy2DAsync(y, bytes, args.c, static_cast<std::size_t>(stride) * size, bytes,
                               static_cast<std::size_t>(args.m), cudaMemcpyDeviceToDevice, device.stream()),
             "cudaMemcpy2DAsync");
}

void forward(const KernelCall& call) {
  const Fp8Product product = fp8_product(call);
  const bool constant = call.in(Fp8LinearIn::weight).constant && call.in(Fp8LinearIn::scale).constant;
  if (launch_fp8_rows(product, constant, static_cast<CudaDevice&>(*call.device).stream())) return;
  multiply_converted(call, product);
}

}  // namespace

void register_fp8_linear_cuda(KernelRegistry& registry) {
  registry.add("fp8_linear", DeviceKind::kCuda, {forward, workspace});
}

}  // namespace hone
