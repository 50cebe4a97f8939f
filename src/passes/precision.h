// The precision pass: sets the element types of a program that was traced in f32.
#pragma once

#include "program/program.h"

namespace hone {

// Returns the program with its f32 weights and states (such as the KV cache) changed to `dtype`. Weights that keep
// their type (Value::keeps_dtype) stay in f32. Activations follow by type inference, which keeps statistics,
// log-probabilities and losses in f32.
[[nodiscard]] Program with_precision(const Program& program, DType dtype);

}  // namespace hone
