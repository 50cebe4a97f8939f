// The random bits of stochastic rounding, the same on every device.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "core/random.h"

namespace hone {

// Eight pieces of 16 bits: for weight, m and v of two neighbouring elements, or for the weight of eight.
struct RoundingBits {
  std::array<std::uint32_t, 4> words;

  [[nodiscard]] constexpr std::uint32_t piece(int index) const {
    return (words[static_cast<std::size_t>(index / 2)] >> (16 * (index % 2))) & 0xFFFFu;
  }
  // Of element `odd` of a pair, for the `which`-th of its numbers.
  [[nodiscard]] constexpr std::uint32_t get(int odd, int which) const { return piece(3 * odd + which); }
};

// A key for a seed; and the bits of a stream's tensor at a step for the group-th elements that share them.
[[nodiscard]] constexpr RoundingBits rounding_bits(std::uint64_t seed, std::uint32_t stream, std::uint32_t step,
                                                   std::uint64_t group) {
  return {philox<7>(seed, {static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32), step, stream})};
}

// The bits of a bf16: the upper one of the value's neighbours with the probability of its distance to the lower one.
[[nodiscard]] constexpr std::uint16_t round_stochastically(float value, std::uint32_t bits) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  if ((word & 0x7F800000u) == 0x7F800000u) {  // infinity as it is, NaN stays NaN
    return static_cast<std::uint16_t>((word >> 16) | ((word & 0x007FFFFFu) != 0 ? 0x40u : 0u));
  }
  return static_cast<std::uint16_t>((word + bits) >> 16);
}

}  // namespace hone
