// Stochastic rounding from f32 to bf16 and its random bits, which are the same on every device.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "core/random.h"

namespace hone {

// Eight pieces of 16 random bits: for weight, m and v of two neighbouring elements, or for the weights of eight.
struct RoundingBits {
  std::array<std::uint32_t, 4> words;

  [[nodiscard]] constexpr std::uint32_t piece(int index) const {
    return (words[static_cast<std::size_t>(index / 2)] >> (16 * (index % 2))) & 0xFFFFu;
  }
  // The piece for number `which` (0 weight, 1 m, 2 v) of element `odd` (0 or 1) of a pair.
  [[nodiscard]] constexpr std::uint32_t get(int odd, int which) const { return piece(3 * odd + which); }
};

using RoundingKeys = PhiloxKeys<7>;

// Random bits of group `group` of elements, in the tensor that `stream` identifies, at a step. Philox with the seed as
// its key; the rest is its counter.
[[nodiscard]] constexpr RoundingBits rounding_bits(const RoundingKeys& keys, std::uint32_t stream, std::uint32_t step,
                                                   std::uint64_t group) {
  return {philox(keys, {static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32), step, stream})};
}
[[nodiscard]] constexpr RoundingBits rounding_bits(std::uint64_t seed, std::uint32_t stream, std::uint32_t step,
                                                   std::uint64_t group) {
  return rounding_bits(RoundingKeys(seed), stream, step, group);
}

// Rounds to one of the two neighbouring bf16 and returns its bits. The one of larger magnitude is taken with the
// probability (value - other) / (their distance). `bits` are 16 random bits.
[[nodiscard]] constexpr std::uint16_t round_stochastically(float value, std::uint32_t bits) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  if ((word & 0x7F800000u) == 0x7F800000u) {  // infinity is kept and NaN stays NaN
    return static_cast<std::uint16_t>((word >> 16) | ((word & 0x007FFFFFu) != 0 ? 0x40u : 0u));
  }
  return static_cast<std::uint16_t>((word + bits) >> 16);
}

}  // namespace hone
