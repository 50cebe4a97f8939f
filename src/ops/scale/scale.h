// Multiplication of a tensor by a constant.
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

// Returns x * factor for x of any floating type, rounded once.
[[nodiscard]] Tensor scale(Tensor x, double factor);

}  // namespace hone
