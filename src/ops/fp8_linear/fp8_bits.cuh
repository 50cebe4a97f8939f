// Conversion of e4m3 to bf16 (core/float8.h).
//
// A byte whose sign goes to bit 15 and whose other bits go to bits 10 to 4 is a bf16 of its number times 2^-120, for
// subnormal numbers too. Times scale x 2^120 it is the weight: in bf16 if the scale is a power of two, because the
// product is then exact, otherwise in f32 with one rounding to bf16.
#pragma once

#include <cstdint>

#include "backend/gpu/kernel.cuh"

namespace hone {

// Bytes 1 and 3 of a word as two bf16 of their numbers times 2^-120.
[[nodiscard]] __device__ inline std::uint32_t spread_odd_bytes(std::uint32_t word) {
  return (word & 0x80008000u) | ((word >> 4) & 0x07F007F0u);
}
// Bytes 0 and 2.
[[nodiscard]] __device__ inline std::uint32_t spread_even_bytes(std::uint32_t word) {
  return spread_odd_bytes(word << 8);
}

[[nodiscard]] __device__ inline bool is_power_of_two(float scale) {  // or 0
  return (__float_as_uint(scale) & 0x7FFFFFu) == 0;
}

// Bits of the factor of spread bytes, scale x 2^120: if kExact, for scales that are powers of two, in bf16 and twice,
// for scaled_exactly(), otherwise in f32, for scaled_in_f32().
template <bool kExact>
[[nodiscard]] __device__ inline std::uint32_t fp8_factor(float scale) {
  const std::uint32_t wide = __float_as_uint(scale * 0x1p120f);
  return kExact ? __byte_perm(wide, 0, 0x3232) : wide;
}

// Two spread bytes times a power of two.
[[nodiscard]] __device__ inline std::uint32_t scaled_exactly(std::uint32_t spread, std::uint32_t twice) {
  return multiplied_pairs(spread, twice);
}
// Two spread bytes times any scale.
[[nodiscard]] __device__ inline std::uint32_t scaled_in_f32(std::uint32_t spread, float wide) {
  const float low = __uint_as_float(spread << 16) * wide;
  const float high = __uint_as_float(spread & 0xFFFF0000u) * wide;
  const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
  std::uint32_t word;
  memcpy(&word, &both, sizeof(word));
  return word;
}

}  // namespace hone
