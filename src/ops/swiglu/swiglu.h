// The gated linear unit with SiLU (Shazeer, "GLU variants improve transformer", 2020): y = silu(gate) * up, silu(x) = x
// / (1 + exp(-x)).
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct SwigluBackwardIn {
  enum : std::size_t { dy, gate_up };
};

// Returns y [rows, n] for gate_up [rows, 2 n], whose rows hold gate and then up. Computed in f32 (f64 for f64) and
// rounded once. Rows past the count are zero.
[[nodiscard]] Tensor swiglu(Tensor gate_up);

// Returns the gradient of gate_up [rows, 2 n] for that of y, dy [rows, n], rounded once.
[[nodiscard]] Tensor swiglu_gradient(Tensor dy, Tensor gate_up);

}  // namespace hone
