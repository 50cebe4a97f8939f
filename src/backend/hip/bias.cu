#include "backend/hip/bias.h"

#include "backend/cuda/check.h"
#include "backend/gpu/kernel.cuh"

namespace hone {
namespace {

constexpr unsigned kThreads = 256;

// blockIdx.x is the row.
template <class T>
__global__ void __launch_bounds__(kThreads) bias_rows(const T* bias, T* c, std::int64_t n, std::int64_t ldc) {
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) c[blockIdx.x * ldc + i] = bias[i];
}

template <class T>
void launch(const GemmArgs& args, cudaStream_t stream) {
  bias_rows<T><<<static_cast<unsigned>(args.m), kThreads, 0, stream>>>(static_cast<const T*>(args.bias),
                                                                       static_cast<T*>(args.c), args.n, args.ldc);
  check_launch("bias");
}

}  // namespace

void write_bias_rows(const GemmArgs& args, cudaStream_t stream) {
  switch (args.c_type) {
    case DType::kF64:
      launch<double>(args, stream);
      break;
    case DType::kF32:
      launch<float>(args, stream);
      break;
    default:
      launch<__nv_bfloat16>(args, stream);
  }
}

}  // namespace hone
