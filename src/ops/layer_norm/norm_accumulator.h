// Accumulators for the gradients of a layer norm's weight and bias. Kernels compute both gradients or neither.
#pragma once

#include <cstddef>

#include "core/dtype.h"
#include "ops/fill/fill.h"
#include "program/gradient_builder.h"

namespace hone {

// Returns the accumulator of input `index` if it is trainable, a scratch tensor of zeros if only input `other` is, and
// no tensor if neither is.
[[nodiscard]] inline Tensor norm_accumulator(GradientBuilder& builder, std::size_t index, std::size_t other) {
  if (builder.needs(index)) return builder.accumulator(index);
  if (!builder.needs(other)) return {};
  const Type type = builder.input(index).type();
  return fill(builder.program(), {accumulator_of(type.dtype), type.shape}, 0.0);
}

}  // namespace hone
