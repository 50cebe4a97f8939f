#include "eval/gpqa/python_random.h"

#include <algorithm>
#include <bit>

#include "core/error.h"

namespace hone {

PythonRandom::PythonRandom(std::uint64_t seed) {
  constexpr std::size_t kSize = 624;
  state_[0] = 19650218u;
  const auto mixed = [this](std::size_t i) { return state_[i] ^ (state_[i] >> 30); };
  for (std::size_t i = 1; i < kSize; ++i) state_[i] = 1812433253u * mixed(i - 1) + static_cast<std::uint32_t>(i);
  const std::array<std::uint32_t, 2> key = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  const std::size_t words = key[1] == 0 ? 1 : 2;
  std::size_t i = 1;
  const auto next = [&] {
    if (++i < kSize) return;
    state_[0] = state_[kSize - 1];
    i = 1;
  };
  for (std::size_t k = 0; k < kSize; ++k) {
    const std::size_t j = k % words;
    state_[i] = (state_[i] ^ (mixed(i - 1) * 1664525u)) + key[j] + static_cast<std::uint32_t>(j);
    next();
  }
  for (std::size_t k = 1; k < kSize; ++k) {
    state_[i] = (state_[i] ^ (mixed(i - 1) * 1566083941u)) - static_cast<std::uint32_t>(i);
    next();
  }
  state_[0] = 0x80000000u;
}

std::uint32_t PythonRandom::bits() {
  constexpr std::size_t kSize = 624;
  if (place_ == kSize) {
    for (std::size_t i = 0; i < kSize; ++i) {
      const std::uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % kSize] & 0x7fffffffu);
      state_[i] = state_[(i + 397) % kSize] ^ (y >> 1) ^ ((y & 1u) != 0 ? 0x9908b0dfu : 0u);
    }
    place_ = 0;
  }
  std::uint32_t y = state_[place_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

std::uint32_t PythonRandom::up_to(std::uint32_t most) {
  HONE_ASSERT(most < 0x80000000u, most);
  const int width = std::bit_width(most + 1);
  std::uint32_t drawn = 0;
  do drawn = bits() >> (32 - width);
  while (drawn > most);
  return drawn;
}

}  // namespace hone
