// Heads of FP8 pages (core/float8_head.h), widened on a GPU. A scale is a power of two, so that every product is exact.
#pragma once

#include "backend/gpu/kernel.cuh"
#include "ops/fp8_linear/fp8_bits.cuh"

namespace hone {

// A scale in bf16, twice.
[[nodiscard]] __device__ inline std::uint32_t head_factor(std::uint8_t scale) {
  return (std::uint32_t{scale} << 7) * 0x10001u;
}

// Selectors of two bytes of a word for permuted_bytes(), which bring each to 16 bits and extend its sign.
inline constexpr std::uint32_t kFirstBytes = 0x9180u;  // 0 and 1
inline constexpr std::uint32_t kLastBytes = 0xB3A2u;   // 2 and 3
inline constexpr std::uint32_t kEvenBytes = 0xA280u;   // 0 and 2
inline constexpr std::uint32_t kOddBytes = 0xB391u;    // 1 and 3

// The two bytes of a word that a selector names, as fp8_bits.cuh spreads them.
[[nodiscard]] __device__ inline std::uint32_t spread_pair(std::uint32_t word, std::uint32_t selector) {
  return permuted_bytes(word, 0, selector) << 4 & 0x87F087F0u;
}

// Two bytes of a word in bf16.
[[nodiscard]] __device__ inline std::uint32_t number_pair(std::uint32_t word, std::uint32_t selector) {
  constexpr std::uint32_t kTwoTo120 = 0x7B807B80u;
  return scaled_exactly(spread_pair(word, selector), kTwoTo120);
}
// Two bytes of a word times their scales, of which `factor` has two. Two products, because scale x 2^120 can be too
// large for bf16.
[[nodiscard]] __device__ inline std::uint32_t widened_pair(std::uint32_t word, std::uint32_t selector,
                                                           std::uint32_t factor) {
  return scaled_exactly(number_pair(word, selector), factor);
}

// Eight bytes times their scale, in bf16.
[[nodiscard]] __device__ inline uint4 widened_eight(uint2 bytes, std::uint32_t factor) {
  return make_uint4(widened_pair(bytes.x, kFirstBytes, factor), widened_pair(bytes.x, kLastBytes, factor),
                    widened_pair(bytes.y, kFirstBytes, factor), widened_pair(bytes.y, kLastBytes, factor));
}

// One byte times its scale, in f32.
[[nodiscard]] __device__ inline float widened_byte(std::uint32_t byte, std::uint8_t scale) {
  const float spread = __uint_as_float((byte & 0x80u) << 24 | (byte & 0x7Fu) << 20);  // the number times 2^-120
  return spread * 0x1p120f * __uint_as_float(std::uint32_t{scale} << 23);
}

}  // namespace hone
