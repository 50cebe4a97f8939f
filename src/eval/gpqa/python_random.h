// Reimplements the part of Python's random.Random on which the prompts of lighteval depend.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace hone {

// MT19937 (Matsumoto and Nishimura 1998), seeded with an integer as CPython's random.seed does (init_by_array).
class PythonRandom {
 public:
  explicit PythonRandom(std::uint64_t seed);

  // Returns random.randint(0, most) for most < 2^31: the top bits of a number, drawn again while they exceed `most`.
  [[nodiscard]] std::uint32_t up_to(std::uint32_t most);

 private:
  [[nodiscard]] std::uint32_t bits();

  std::array<std::uint32_t, 624> state_{};
  std::size_t place_ = 624;
};

}  // namespace hone
