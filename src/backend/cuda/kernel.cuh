// The functions of backend/gpu/kernel.cuh that CUDA has only as PTX.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace hone {

// Loads a number that all lanes need in a later iteration of a loop. The asm hides from the compiler that all lanes get
// the same value; otherwise it would move it to a uniform register and wait for it in the iteration that loads it.
[[nodiscard]] __device__ inline float load_for_later(const float* from) {
  float value;
  asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(from));
  return value;
}
[[nodiscard]] __device__ inline double load_for_later(const double* from) {
  double value;
  asm volatile("ld.global.f64 %0, [%1];" : "=d"(value) : "l"(from));
  return value;
}

[[nodiscard]] __device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// Copies 16 bytes to shared memory asynchronously. If `valid` is false it writes zeros and does not read `from`.
__device__ inline void copy_async16(std::uint32_t shared, const void* from, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared), "l"(from), "r"(bytes) : "memory");
}
// Does the same for 4 bytes.
__device__ inline void copy_async4(std::uint32_t shared, const void* from, bool valid) {
  const int bytes = valid ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;\n" ::"r"(shared), "l"(from), "r"(bytes) : "memory");
}
__device__ inline void copy_async_commit() { asm volatile("cp.async.commit_group;\n" ::: "memory"); }
// Waits until at most `kPending` committed groups of this thread are incomplete.
template <int kPending>
__device__ inline void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

// Packs two floats as bf16 into a register, `low` in the lower half, rounded to nearest even.
[[nodiscard]] __device__ inline std::uint32_t packed_bf16(float low, float high) {
  std::uint32_t result;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(result) : "f"(high), "f"(low));
  return result;
}

// 2^x with an error of at most 2 ulp; results below 2^-126 are flushed to 0.
[[nodiscard]] __device__ inline float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
  return result;
}
// 1 / x with an error of at most 1 ulp; subnormal numbers are flushed to 0.
[[nodiscard]] __device__ inline float reciprocal_fast(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
// The square root with an error of at most 2 ulp.
[[nodiscard]] __device__ inline float root_fast(float x) {
  float result;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
// The same, with fewer instructions; the root of a subnormal number is 0.
[[nodiscard]] __device__ inline float root_flushed(float x) {
  float result;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// word >> kDown and word & kMask, of which the compiler knows nothing and so moves nothing through them.
template <int kDown>
[[nodiscard]] __device__ inline std::uint32_t opaque_shift(std::uint32_t word) {
  asm("shr.u32 %0, %0, %1;" : "+r"(word) : "n"(kDown));
  return word;
}
template <std::uint32_t kMask>
[[nodiscard]] __device__ inline std::uint32_t opaque_and(std::uint32_t word) {
  if (kMask != ~0u) asm("and.b32 %0, %0, %1;" : "+r"(word) : "n"(kMask));
  return word;
}

// Four of the eight bytes of `low` and `high`, chosen by the digits of a selector, the lowest first. Bit 3 of a digit
// takes the byte's sign bit eight times instead, unlike in __byte_perm().
[[nodiscard]] __device__ inline std::uint32_t permuted_bytes(std::uint32_t low, std::uint32_t high,
                                                             std::uint32_t selector) {
  std::uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
  return result;
}

// The products of two pairs of bf16, rounded to nearest even.
[[nodiscard]] __device__ inline std::uint32_t multiplied_pairs(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product;
#if __CUDA_ARCH__ >= 900
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
#else
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000u));
#endif
  return product;
}

// A number of f32 as e4m3, rounded to nearest even; at most 448 in magnitude.
[[nodiscard]] __device__ inline std::uint8_t e4m3_one(float value) {
  return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
}

// Four numbers of f32 as e4m3, the first in the lowest byte.
[[nodiscard]] __device__ inline std::uint32_t e4m3_four(float a, float b, float c, float d) {
#if __CUDA_ARCH__ >= 890
  std::uint32_t bytes;
  asm("{.reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};}"
      : "=r"(bytes)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return bytes;
#else
  const std::uint32_t low = __nv_cvt_float2_to_fp8x2({a, b}, __NV_SATFINITE, __NV_E4M3);
  return low | static_cast<std::uint32_t>(__nv_cvt_float2_to_fp8x2({c, d}, __NV_SATFINITE, __NV_E4M3)) << 16;
#endif
}

}  // namespace hone
