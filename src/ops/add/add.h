// Elementwise sum.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// The operands, in order.
struct AddIn {
  enum : std::size_t { a, b };
};

// a and b of one type. As `a + b` in model code.
[[nodiscard]] Tensor add(Tensor a, Tensor b);
[[nodiscard]] inline Tensor operator+(Tensor a, Tensor b) { return add(a, b); }

}  // namespace hone
