// Multiplication by a constant.
#pragma once

#include "program/program.h"

namespace hone {

struct ScaleAttributes {
  double factor = 1;

  template <class Visitor>
  void fields(Visitor& v) {
    v("factor", factor);
  }
};

// x of any floating type -> x * factor, rounded once.
[[nodiscard]] Tensor scale(Tensor x, double factor);

}  // namespace hone
