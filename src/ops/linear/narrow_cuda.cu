#include "ops/cuda_kernel.cuh"
#include "ops/linear/narrow_cuda.h"

namespace hone {
namespace {

__global__ void narrow_kernel(const float* from, __nv_bfloat16* to, std::int64_t elements) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < elements) to[i] = __float2bfloat16_rn(from[i]);
}

}  // namespace

void narrow_cuda(const KernelCall& call, const float* from, std::byte* to, std::int64_t elements) {
  constexpr int kThreads = 256;
  if (elements == 0) return;
  narrow_kernel<<<static_cast<unsigned>(ceil_div(elements, kThreads)), kThreads, 0, stream_of(call)>>>(
      from, reinterpret_cast<__nv_bfloat16*>(to), elements);
  check_launch("narrow");
}

}  // namespace hone
