// L2 norm over all gradients of a step.
#pragma once

#include <span>

#include "program/program.h"

namespace hone {

// Returns the norm [1], f32 (f64 if the gradients are f64), of at least one floating tensor; either all are f64 or none
// is. Squares are summed in double in a fixed order that follows from the sizes of the tensors.
[[nodiscard]] Tensor gradient_norm(std::span<const Tensor> gradients);

}  // namespace hone
