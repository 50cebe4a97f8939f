// Counter-based random numbers: each number is a function of a key and a counter, so that results do not depend on the
// number of threads or on the order in which numbers are drawn.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace hone {

// The product of two numbers. In 64 bits nvcc forgets that both have 32, which costs an addition for each product.
[[nodiscard]] constexpr std::uint64_t full_product(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  if (!std::is_constant_evaluated()) return std::uint64_t{__umulhi(a, b)} << 32 | a * b;
#endif
  return std::uint64_t{a} * b;
}

// The keys of the rounds of Philox 4x32. A kernel gets them from the host, so that no thread computes them.
template <std::size_t kRounds = 10>
struct PhiloxKeys {
  std::array<std::uint32_t, 2 * kRounds> words{};

  PhiloxKeys() = default;
  constexpr explicit PhiloxKeys(std::uint64_t key) {
    for (std::uint32_t round = 0; round < kRounds; ++round) {
      words[2 * round] = static_cast<std::uint32_t>(key) + round * 0x9E3779B9u;
      words[2 * round + 1] = static_cast<std::uint32_t>(key >> 32) + round * 0xBB67AE85u;
    }
  }
};

// Philox 4x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) with the authors' default of 10
// rounds. Stochastic rounding uses 7, the fewest that pass the authors' statistical tests.
template <std::size_t kRounds>
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox(const PhiloxKeys<kRounds>& keys,
                                                            std::array<std::uint32_t, 4> counter) {
  for (std::size_t round = 0; round < kRounds; ++round) {
    const std::uint64_t a = full_product(0xD2511F53u, counter[0]);
    const std::uint64_t b = full_product(0xCD9E8D57u, counter[2]);
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ keys.words[2 * round], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ keys.words[2 * round + 1],
               static_cast<std::uint32_t>(a)};
  }
  return counter;
}

template <std::size_t kRounds = 10>
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox(std::uint64_t key, std::array<std::uint32_t, 4> counter) {
  return philox(PhiloxKeys<kRounds>(key), counter);
}

// Maps the 24 upper bits to a number in the open interval (0, 1): the centre of one of 2^24 equal cells.
[[nodiscard]] constexpr float uniform_from(std::uint32_t bits) {
  return (static_cast<float>(bits >> 8) + 0.5f) * 0x1p-24f;
}

// Stream of random numbers addressed by index. `name` separates uses that share a seed ("weights", "shuffle",
// "sample"); `step` separates the steps of one use.
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::string_view name, std::uint64_t step = 0);
  // Returns the stream of step 0 with this key().
  [[nodiscard]] static RandomStream with_key(std::uint64_t key) { return RandomStream(key); }
  [[nodiscard]] std::uint64_t key() const { return key_; }

  [[nodiscard]] std::uint32_t bits(std::uint64_t index) const;
  [[nodiscard]] float uniform(std::uint64_t index) const { return uniform_from(bits(index)); }
  [[nodiscard]] float normal(std::uint64_t index) const;  // mean 0, standard deviation 1 (Box-Muller)
  // Fills `values` with normal(first), normal(first + 1) and so on, in about half of the time.
  void normals(std::uint64_t first, std::span<float> values) const;
  [[nodiscard]] std::uint64_t below(std::uint64_t index, std::uint64_t bound) const;  // uniform integer in [0, bound)
  // Returns a random permutation of 0..count-1 (Fisher-Yates).
  [[nodiscard]] std::vector<std::uint32_t> permutation(std::uint32_t count) const;

 private:
  explicit RandomStream(std::uint64_t key) : key_(key) {}
  // Returns bits(4 * number) to bits(4 * number + 3).
  [[nodiscard]] std::array<std::uint32_t, 4> block(std::uint64_t number) const;

  std::uint64_t key_;
  std::uint64_t step_ = 0;
};

}  // namespace hone
