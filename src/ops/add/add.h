// Elementwise sum.
#pragma once

#include "program/program.h"

namespace hone {

// a and b of one type. As `a + b` in model code.
[[nodiscard]] Tensor add(Tensor a, Tensor b);
[[nodiscard]] inline Tensor operator+(Tensor a, Tensor b) { return add(a, b); }

}  // namespace hone
