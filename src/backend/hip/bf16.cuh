// CUDA's bf16 for HIP, with the roundings of CUDA. ROCm's own type needs headers of ROCm 6.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>

struct __nv_bfloat16 {
  std::uint16_t bits;

  __nv_bfloat16() = default;
  // Rounds to nearest even; NaN becomes 0x7FFF.
  __host__ __device__ __nv_bfloat16(float value) {
    const std::uint32_t word = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t rounded = word + 0x7FFFu + ((word >> 16) & 1u);
    bits = static_cast<std::uint16_t>((word & 0x7FFFFFFFu) > 0x7F800000u ? 0x7FFFu : rounded >> 16);
  }
  __host__ __device__ operator float() const {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
  }
};

struct __nv_bfloat162 {
  __nv_bfloat16 x, y;
};

__device__ inline float __bfloat162float(__nv_bfloat16 value) { return value; }
__device__ inline __nv_bfloat16 __float2bfloat16_rn(float value) { return value; }
__device__ inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {x, y}; }
__device__ inline __nv_bfloat16 __ushort_as_bfloat16(std::uint16_t bits) {
  return __builtin_bit_cast(__nv_bfloat16, bits);
}
