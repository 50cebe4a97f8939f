// Squares, as an activation function: y = factor x^2.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// The operands, in order.
struct ToySquareBackwardIn {
  enum : std::size_t { dy, x };
};

struct ToySquareAttributes {
  double factor = 1;

  template <class Visitor>
  void fields(Visitor& v) {
    v("factor", factor);
  }
};

// x of any floating type -> factor x^2, rounded once.
[[nodiscard]] Tensor toy_square(Tensor x, const ToySquareAttributes& attributes);

}  // namespace hone
