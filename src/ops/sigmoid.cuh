// The logistic function for CUDA kernels.
#pragma once

#include "ops/cuda_kernel.cuh"

namespace hone {

// 1 / (1 + exp(-x)), accurate in both tails. For bf16 it is computed to about 1e-6, of which rounding keeps 1e-3.
template <class T>
[[nodiscard]] __device__ CudaAccumulator<T> sigmoid(CudaAccumulator<T> x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const float e = __expf(-fabsf(x));
    return __fdividef(x < 0.0f ? e : 1.0f, 1.0f + e);
  } else {
    using A = CudaAccumulator<T>;
    const A e = exp(-fabs(x));
    return (x < A(0) ? e : A(1)) / (A(1) + e);
  }
}

}  // namespace hone
