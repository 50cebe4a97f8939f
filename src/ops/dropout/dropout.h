// Dropout (Srivastava et al., 2014), scaled so that the mean stays: y = 0 with a probability, else x / (1 -
// probability).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/random.h"
#include "program/program.h"

namespace hone {

// The operands, in order.
struct DropoutIn {
  enum : std::size_t { x, draw };
};

struct DropoutAttributes {
  double probability = 0.1;
  std::int64_t site = 0;  // which dropout of a model this is

  template <class Visitor>
  void fields(Visitor& v) {
    v("probability", probability);
    v("site", site);
  }
};

// What the input `draw` of a dropout holds. All dropouts of one run share it.
inline constexpr std::int64_t kDropoutDraw = 4;
[[nodiscard]] std::array<std::int32_t, kDropoutDraw> dropout_draw(std::uint64_t seed, std::int64_t step,
                                                                  std::int64_t micro_batch);

// x of any floating type, draw i32[kDropoutDraw] -> y. Whether an element stays depends on draw, site and its place in
// x alone: the same program run again draws the same. Its probability is a multiple of 2^-16, and the scale fits it.
[[nodiscard]] Tensor dropout(Tensor x, Tensor draw, const DropoutAttributes& attributes);

// Below which of the 16 bits of an element's number it is dropped.
[[nodiscard]] std::uint32_t dropout_threshold(double probability);
// 1 / (1 - the probability that the threshold gives).
[[nodiscard]] constexpr double dropout_scale(std::uint32_t threshold) { return 65536.0 / (65536.0 - threshold); }

inline constexpr std::int64_t kDropoutBlock = 8;  // elements that one Philox block decides on

// The numbers of the elements [8 block, 8 block + 8): element 8 block + i has the lower (even i) or upper 16 bits of
// word i / 2. Key and counter: draw[0..1] is the key.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> dropout_bits(std::array<std::uint32_t, kDropoutDraw> draw,
                                                                  std::uint32_t site, std::uint32_t block) {
  return philox((std::uint64_t{draw[1]} << 32) | draw[0], {block, site, draw[2], draw[3]});
}
[[nodiscard]] constexpr std::uint32_t dropout_number(const std::array<std::uint32_t, 4>& bits, int i) {
  return (bits[static_cast<std::size_t>(i / 2)] >> (i % 2 * 16)) & 0xFFFFu;
}

}  // namespace hone
