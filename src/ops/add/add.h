// Elementwise sum of two tensors.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct AddIn {
  enum : std::size_t { a, b };
};

// Returns a + b, rounded once, for a and b of one type; model code writes `a + b`. Throws Error if the types differ.
[[nodiscard]] Tensor add(Tensor a, Tensor b);
[[nodiscard]] inline Tensor operator+(Tensor a, Tensor b) { return add(a, b); }

}  // namespace hone
