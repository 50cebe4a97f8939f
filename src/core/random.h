// Counter-based random numbers: each number is a function of a key and a counter, so that results do not depend on the
// number of threads or on the order in which numbers are drawn.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace hone {

// Philox 4x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) with the authors' default of 10
// rounds. Stochastic rounding uses 7, the fewest that pass the authors' statistical tests.
template <int kRounds = 10>
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox(std::uint64_t key, std::array<std::uint32_t, 4> counter) {
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ k0, static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ k1, static_cast<std::uint32_t>(a)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return counter;
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
