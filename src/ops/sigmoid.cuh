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

// exp(-|x|) is subnormal in f32, or 0, only for x whose bits in bf16 are at least these as an unsigned number: from -87
// down, which includes NaN with a sign. (Above 87 it is as well, but 1 + exp(-x) is 1 whatever it is.)
inline constexpr std::uint32_t kSteepBits = 0xC2AE;

// Returns the bits of sigmoid<__nv_bfloat16>() for x above -87, in fewer instructions: neither exp(-|x|) nor
// 1 + exp(-|x|) has to be scaled.
[[nodiscard]] __device__ inline float sigmoid_above_steep(float x) {
  const float e = exp2_fast(-fabsf(x) * 1.4426950408889634f);
  const float inverse = reciprocal_fast(1.0f + e);
  return x < 0.0f ? e * inverse : inverse;
}

}  // namespace hone
