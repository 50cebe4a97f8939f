// The L2 norm of all gradients of a step.
#pragma once

#include <span>

#include "program/program.h"

namespace hone {

// Any number of floating tensors, at least one, all of them f64 or none -> [1], f32 (f64). Squares are added in double:
// over blocks of a fixed size, then the blocks in order, then the tensors in order.
[[nodiscard]] Tensor gradient_norm(std::span<const Tensor> gradients);

}  // namespace hone
