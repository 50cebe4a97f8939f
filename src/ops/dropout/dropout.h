// Dropout (Srivastava et al., 2014), scaled so that the expectation stays: y = 0 with a probability, otherwise x / (1 -
// probability).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/random.h"
#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct DropoutIn {
  enum : std::size_t { x, draw };
};

struct DropoutAttributes {
  double probability = 0.1;
  std::int64_t site = 0;  // number of this dropout in the model

  template <class Visitor>
  void fields(Visitor& v) {
    v("probability", probability);
    v("site", site);
  }
};

// Attributes of dropout_part.
struct DropoutPartAttributes {
  double probability = 0.1;
  std::int64_t site = 0;
  std::int64_t first = 0;    // first column in the whole value
  std::int64_t columns = 1;  // of the whole value

  template <class Visitor>
  void fields(Visitor& v) {
    v("probability", probability);
    v("site", site);
    v("first", first);
    v("columns", columns);
  }
};

// Contents of the input `draw`, which all dropouts of one run share: the key of the random stream (two words), step and
// micro-batch.
inline constexpr std::int64_t kDropoutDraw = 4;
[[nodiscard]] std::array<std::int32_t, kDropoutDraw> dropout_draw(std::uint64_t seed, std::int64_t step,
                                                                  std::int64_t micro_batch);

// Returns y for x of any floating type and draw i32[kDropoutDraw]. Whether an element stays depends only on draw, site
// and the element's index in x, so that the same program run again drops the same elements. The probability is rounded
// to a multiple of 2^-16, and the scale is that of the rounded probability.
[[nodiscard]] Tensor dropout(Tensor x, Tensor draw, const DropoutAttributes& attributes);

// Returns the same for some columns x [rows, n] of a value, those that one rank of a tensor group has: the elements
// stay that dropout() of the whole value leaves.
[[nodiscard]] Tensor dropout_part(Tensor x, Tensor draw, const DropoutPartAttributes& attributes);

// Threshold for the 16-bit random number of an element: the element is dropped if its number is below it.
[[nodiscard]] std::uint32_t dropout_threshold(double probability);
// Factor of the elements that stay: 1 / (1 - threshold / 65536).
[[nodiscard]] constexpr double dropout_scale(std::uint32_t threshold) { return 65536.0 / (65536.0 - threshold); }

inline constexpr std::int64_t kDropoutBlock = 8;  // elements for each Philox block

// Random words for the elements [8 block, 8 block + 8): element 8 block + i has the lower (even i) or upper (odd i) 16
// bits of word i / 2. draw[0..1] is Philox's key; the block, site and draw[2..3] are its counter.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> dropout_bits(std::array<std::uint32_t, kDropoutDraw> draw,
                                                                  std::uint32_t site, std::uint32_t block) {
  return philox((std::uint64_t{draw[1]} << 32) | draw[0], {block, site, draw[2], draw[3]});
}
// The places of a rank's columns in the rows of a whole value.
struct DropoutColumns {
  std::int64_t first = 0;
  std::int64_t count = 1;
  std::int64_t whole = 1;

  // Index in the whole value of an element of the part.
  [[nodiscard]] constexpr std::int64_t place(std::int64_t element) const {
    return element / count * whole + first + element % count;
  }
};

// The 16-bit number of element i of a block.
[[nodiscard]] constexpr std::uint32_t dropout_number(const std::array<std::uint32_t, 4>& bits, int i) {
  return (bits[static_cast<std::size_t>(i / 2)] >> (i % 2 * 16)) & 0xFFFFu;
}

}  // namespace hone
