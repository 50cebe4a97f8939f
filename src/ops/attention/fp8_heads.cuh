// Heads of FP8 pages (core/float8_head.h), widened on a GPU. A scale is a power of two, so that every product is exact.
#pragma once

#include "backend/gpu/kernel.cuh"
#include "ops/fp8_linear/fp8_bits.cuh"

namespace hone {

// A scale in bf16, twice.
[[nodiscard]] __device__ inline std::uint32_t head_factor(std::uint8_t scale) {
  return (std::uint32_t{scale} << 7) * 0x10001u;
}

// The two bytes of a word that a selector names, as fp8_bits.cuh spreads them. The selector is 0x1800 for bytes
// 0 and 1 and 0x3A22 for bytes 2 and 3: it puts the sign of the first byte below the second one, so that the shift
// brings it to bit 15.
[[nodiscard]] __device__ inline std::uint32_t spread_pair(std::uint32_t word, std::uint32_t selector) {
  const std::uint32_t placed = permuted_bytes(word, 0, selector);
  return static_cast<std::uint32_t>(static_cast<std::int32_t>(placed) >> 4) & 0x87F087F0u;
}

// Two bytes of a word times their scale. Two products, because scale x 2^120 can be
// too large for bf16.
[[nodiscard]] __device__ inline std::uint32_t widened_pair(std::uint32_t word, std::uint32_t selector,
                                                           std::uint32_t factor) {
  constexpr std::uint32_t kTwoTo120 = 0x7B807B80u;
  return scaled_exactly(scaled_exactly(spread_pair(word, selector), kTwoTo120), factor);
}

// Eight bytes times their scale, in bf16.
[[nodiscard]] __device__ inline uint4 widened_eight(uint2 bytes, std::uint32_t factor) {
  return make_uint4(widened_pair(bytes.x, 0x1800u, factor), widened_pair(bytes.x, 0x3A22u, factor),
                    widened_pair(bytes.y, 0x1800u, factor), widened_pair(bytes.y, 0x3A22u, factor));
}

// One byte times its scale, in f32.
[[nodiscard]] __device__ inline float widened_byte(std::uint32_t byte, std::uint8_t scale) {
  const float spread = __uint_as_float((byte & 0x80u) << 24 | (byte & 0x7Fu) << 20);  // the number times 2^-120
  return spread * 0x1p120f * __uint_as_float(std::uint32_t{scale} << 23);
}

}  // namespace hone
