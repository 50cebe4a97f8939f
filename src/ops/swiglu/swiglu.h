// The gated linear unit with SiLU (Shazeer, "GLU variants improve transformer", 2020): y = silu(gate) * up, silu(x) = x
// / (1 + exp(-x)).
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// The operands, in order.
struct SwigluBackwardIn {
  enum : std::size_t { dy, gate_up };
};

// gate_up [rows, 2 n], a row holds gate then up -> y [rows, n]. Computed in f32 (f64) and rounded once; rows past the
// count are zero.
[[nodiscard]] Tensor swiglu(Tensor gate_up);

}  // namespace hone
