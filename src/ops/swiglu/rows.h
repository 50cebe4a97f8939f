// Rows of swiglu and of its backward pass on the CPU, which the operations that it is fused with share.
#pragma once

#include <cstdint>

#include "backend/cpu/vector_math.h"
#include "ops/rows.h"

namespace hone {

// y = gate s up, where s = sigmoid(gate).
template <class T>
void swiglu_row(const T* gate, const T* up, std::int64_t n, T* y) {
  using A = Accumulator<T>;
  for (std::int64_t i = 0; i < n; ++i) {
    const A g = widen(gate[i]);
    y[i] = static_cast<T>(g * vsigmoid(g) * widen(up[i]));
  }
}

// dgate = dy up s (1 + gate (1 - s)) and dup = dy gate s.
template <class T>
void swiglu_backward_row(const T* dy, const T* gate, const T* up, std::int64_t n, T* dgate, T* dup) {
  using A = Accumulator<T>;
  for (std::int64_t i = 0; i < n; ++i) {
    const A g = widen(gate[i]);
    const A s = vsigmoid(g);
    dgate[i] = static_cast<T>(widen(dy[i]) * widen(up[i]) * s * (A(1) + g * (A(1) - s)));
    dup[i] = static_cast<T>(widen(dy[i]) * g * s);
  }
}

}  // namespace hone
