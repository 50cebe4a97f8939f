// The random bits of stochastic rounding, the same on every device.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "core/random.h"

namespace hone {

// 16 bits for each of the weight, m and v of two neighbouring elements.
struct RoundingBits {
  std::array<std::uint32_t, 4> words;

  // Of element `odd` of the pair, for the `which`-th of its numbers.
  [[nodiscard]] constexpr std::uint32_t get(int odd, int which) const {
    const int piece = 3 * odd + which;
    return (words[static_cast<std::size_t>(piece / 2)] >> (16 * (piece % 2))) & 0xFFFFu;
  }
};

// A key for a seed; and the bits of the pair of elements 2 pair and 2 pair + 1 of a stream's tensor at a step.
[[nodiscard]] constexpr RoundingBits rounding_bits(std::uint64_t seed, std::uint32_t stream, std::uint32_t step,
                                                   std::uint64_t pair) {
  return {philox<7>(seed, {static_cast<std::uint32_t>(pair), static_cast<std::uint32_t>(pair >> 32), step, stream})};
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
