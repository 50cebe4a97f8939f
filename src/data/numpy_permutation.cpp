#include "data/numpy_permutation.h"

#include <array>
#include <bit>
#include <numeric>
#include <utility>

namespace hone {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr Wide wide(std::uint64_t high, std::uint64_t low) { return static_cast<Wide>(high) << 64 | low; }

// Computes SeedSequence(seed).generate_state(4, uint64).
std::array<std::uint64_t, 4> seed_words(std::uint64_t seed) {
  constexpr unsigned kShift = 16;
  std::uint32_t constant = 0x43B0D7E5;
  const auto hash_mix = [&](std::uint32_t value) {
    value ^= constant;
    constant *= 0x931E8875;
    value *= constant;
    return value ^ value >> kShift;
  };
  std::array<std::uint32_t, 4> pool{};
  const std::array<std::uint32_t, 4> entropy = {static_cast<std::uint32_t>(seed),
                                                static_cast<std::uint32_t>(seed >> 32), 0, 0};
  for (std::size_t i = 0; i < pool.size(); ++i) pool[i] = hash_mix(entropy[i]);
  for (std::size_t from = 0; from < pool.size(); ++from) {
    for (std::size_t to = 0; to < pool.size(); ++to) {
      if (from == to) continue;
      const std::uint32_t mixed = 0xCA01F9DD * pool[to] - 0x4973F715 * hash_mix(pool[from]);
      pool[to] = mixed ^ mixed >> kShift;
    }
  }
  constant = 0x8B51F9DD;
  std::array<std::uint64_t, 4> words{};
  for (std::size_t i = 0; i < 2 * words.size(); ++i) {
    std::uint32_t value = pool[i % pool.size()] ^ constant;
    constant *= 0x58F38DED;
    value *= constant;
    value ^= value >> kShift;
    words[i / 2] |= static_cast<std::uint64_t>(value) << (i % 2 == 0 ? 0 : 32);
  }
  return words;
}

class Pcg64 {
 public:
  explicit Pcg64(std::uint64_t seed) {
    const auto words = seed_words(seed);
    increment_ = wide(words[2], words[3]) << 1 | 1;
    step();
    state_ += wide(words[0], words[1]);
    step();
  }

  // Returns half of a 64-bit output, the lower half first, as numpy does for 32-bit draws.
  std::uint32_t next() {
    if (std::exchange(has_half_, !has_half_)) return half_;
    step();
    const auto folded = static_cast<std::uint64_t>(state_ >> 64) ^ static_cast<std::uint64_t>(state_);
    const std::uint64_t value = std::rotr(folded, static_cast<int>(state_ >> 122));
    half_ = static_cast<std::uint32_t>(value >> 32);
    return static_cast<std::uint32_t>(value);
  }

 private:
  void step() { state_ = state_ * wide(2549297995355413924U, 4865540595714422341U) + increment_; }

  Wide state_ = 0;
  Wide increment_ = 0;
  bool has_half_ = false;
  std::uint32_t half_ = 0;
};

}  // namespace

std::vector<std::uint32_t> numpy_permutation(std::uint64_t seed, std::uint32_t count) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  Pcg64 random(seed);
  for (std::uint32_t i = count; i-- > 1;) {
    const std::uint32_t mask = ~std::uint32_t{0} >> std::countl_zero(i);
    std::uint32_t other = random.next() & mask;
    while (other > i) other = random.next() & mask;
    std::swap(order[i], order[other]);
  }
  return order;
}

}  // namespace hone
