// Where the gradients of a norm's weight and bias are summed: kernels sum both or neither.
#pragma once

#include <cstddef>

#include "core/dtype.h"
#include "ops/fill/fill.h"
#include "program/gradient_builder.h"

namespace hone {

// The accumulator of input `index`; zeros that nobody reads where the `other` alone is trained; none where neither is.
[[nodiscard]] inline Tensor norm_accumulator(GradientBuilder& builder, std::size_t index, std::size_t other) {
  if (builder.needs(index)) return builder.accumulator(index);
  if (!builder.needs(other)) return {};
  const Type type = builder.input(index).type();
  return fill(builder.program(), {accumulator_of(type.dtype), type.shape}, 0.0);
}

}  // namespace hone
