// The functions of backend/gpu/kernel.cuh for HIP. backend/cuda/kernel.cuh describes them.
#pragma once

#include <hip/hip_runtime.h>

#include <cstdint>
#include <cstring>

#include "backend/hip/bf16.cuh"
#include "backend/hip/runtime.h"
#include "backend/hip/warp.cuh"

#define __grid_constant__

// CUDA's loads and stores that name a cache are ordinary ones: the caches of these GPUs have other levels.
template <class T>
__device__ inline T __ldcg(const T* from) {
  return *from;
}
template <class T>
__device__ inline T __ldcs(const T* from) {
  return *from;
}
template <class T>
__device__ inline void __stwb(T* to, T value) {
  *to = value;
}

// The greater and the lesser of two pairs of unsigned halves.
__device__ inline std::uint32_t __vmaxu2(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t low = max(a & 0xFFFFu, b & 0xFFFFu);
  return max(a & 0xFFFF0000u, b & 0xFFFF0000u) | low;
}
__device__ inline std::uint32_t __vminu2(std::uint32_t a, std::uint32_t b) {
  const std::uint32_t low = min(a & 0xFFFFu, b & 0xFFFFu);
  return min(a & 0xFFFF0000u, b & 0xFFFF0000u) | low;
}

namespace hone {

template <class T>
[[nodiscard]] __device__ inline T load_for_later(const T* from) {
  return *from;
}

// Copies to shared memory are finished when they return.
[[nodiscard]] __device__ inline void* shared_address(const void* pointer) { return const_cast<void*>(pointer); }
__device__ inline void copy_async16(void* shared, const void* from, bool valid) {
  *static_cast<uint4*>(shared) = valid ? *static_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
}
__device__ inline void copy_async4(void* shared, const void* from, bool valid) {
  *static_cast<std::uint32_t*>(shared) = valid ? *static_cast<const std::uint32_t*>(from) : 0;
}
__device__ inline void copy_async_commit() {}
template <int kPending>
__device__ inline void copy_async_wait() {}

[[nodiscard]] __device__ inline std::uint32_t packed_bf16(float low, float high) {
  return std::uint32_t{__nv_bfloat16(low).bits} | std::uint32_t{__nv_bfloat16(high).bits} << 16;
}

[[nodiscard]] __device__ inline float exp2_fast(float x) { return x < -126.0f ? 0.0f : exp2f(x); }
[[nodiscard]] __device__ inline float reciprocal_fast(float x) { return 1.0f / x; }
[[nodiscard]] __device__ inline float root_fast(float x) { return sqrtf(x); }
[[nodiscard]] __device__ inline float root_flushed(float x) { return sqrtf(x); }

template <int kDown>
[[nodiscard]] __device__ inline std::uint32_t opaque_shift(std::uint32_t word) {
  return word >> kDown;
}
template <std::uint32_t kMask>
[[nodiscard]] __device__ inline std::uint32_t opaque_and(std::uint32_t word) {
  return word & kMask;
}

[[nodiscard]] __device__ inline std::uint32_t permuted_bytes(std::uint32_t low, std::uint32_t high,
                                                             std::uint32_t selector) {
  const std::uint64_t both = std::uint64_t{high} << 32 | low;
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t digit = selector >> 4 * i & 0xFu;
    const auto byte = static_cast<std::uint32_t>(both >> 8 * (digit & 7u)) & 0xFFu;
    result |= ((digit & 8u) == 0 ? byte : (byte & 0x80u) != 0 ? 0xFFu : 0u) << 8 * i;
  }
  return result;
}

[[nodiscard]] __device__ inline std::uint32_t multiplied_pairs(std::uint32_t a, std::uint32_t b) {
  return packed_bf16(__uint_as_float(a << 16) * __uint_as_float(b << 16),
                     __uint_as_float(a & 0xFFFF0000u) * __uint_as_float(b & 0xFFFF0000u));
}

[[nodiscard]] __device__ inline std::uint8_t e4m3_one(float value) {
  const std::uint32_t word = __float_as_uint(value);
  const std::uint32_t sign = word >> 24 & 0x80u;
  const std::uint32_t magnitude = word & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<std::uint8_t>(sign | 0x7Fu);
  // Below 2^-6 numbers are multiples of 2^-9; the sum with 2^14 rounds to them.
  if (magnitude < 121u << 23) {
    const float rounded = __uint_as_float(magnitude) + 0x1p14f;
    return static_cast<std::uint8_t>(sign | (__float_as_uint(rounded) & 0xFu));
  }
  const std::uint32_t rounded = magnitude + 0x7FFFFu + (magnitude >> 20 & 1u);
  return static_cast<std::uint8_t>(sign | min((rounded >> 20) - (120u << 3), 0x7Eu));
}
[[nodiscard]] __device__ inline std::uint32_t e4m3_four(float a, float b, float c, float d) {
  return std::uint32_t{e4m3_one(a)} | std::uint32_t{e4m3_one(b)} << 8 | std::uint32_t{e4m3_one(c)} << 16 |
         std::uint32_t{e4m3_one(d)} << 24;
}

}  // namespace hone
