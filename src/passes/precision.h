// Chooses the element types of a program that was traced in f32.
#pragma once

#include "program/program.h"

namespace hone {

// The same program with weights, but for those that keep their type, and KV pages of `dtype`; activations follow by
// type inference, which keeps statistics, log-probabilities and losses in f32.
[[nodiscard]] Program with_precision(const Program& program, DType dtype);

}  // namespace hone
