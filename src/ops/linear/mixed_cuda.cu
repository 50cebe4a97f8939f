#include "ops/cuda_kernel.cuh"
#include "ops/linear/mixed_cuda.h"

namespace hone {
namespace {

constexpr int kThreads = 256;

__device__ std::int64_t element() { return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }

__global__ void narrow_kernel(const float* from, __nv_bfloat16* to, std::int64_t elements) {
  const std::int64_t i = element();
  if (i < elements) to[i] = __float2bfloat16_rn(from[i]);
}

__global__ void add_bias_kernel(float* y, const __nv_bfloat16* bias, std::int64_t elements, std::int64_t n) {
  const std::int64_t i = element();
  if (i < elements) y[i] += __bfloat162float(bias[i % n]);
}

unsigned blocks(std::int64_t elements) { return static_cast<unsigned>(ceil_div(elements, kThreads)); }

}  // namespace

void narrow_cuda(const KernelCall& call, const float* from, std::byte* to, std::int64_t elements) {
  if (elements == 0) return;
  narrow_kernel<<<blocks(elements), kThreads, 0, stream_of(call)>>>(from, reinterpret_cast<__nv_bfloat16*>(to),
                                                                    elements);
  check_launch("narrow");
}

void add_bias_cuda(const KernelCall& call, float* y, const std::byte* bias, std::int64_t rows, std::int64_t n) {
  if (rows * n == 0) return;
  add_bias_kernel<<<blocks(rows * n), kThreads, 0, stream_of(call)>>>(y, reinterpret_cast<const __nv_bfloat16*>(bias),
                                                                      rows * n, n);
  check_launch("add_bias");
}

}  // namespace hone
