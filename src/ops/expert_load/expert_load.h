// The load of each expert of a mixture: how many choices of tokens fell on it.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// Indices of the inputs.
struct ExpertLoadIn {
  enum : std::size_t { expert, sums };
};

// Adds the number of times that each expert was chosen in expert i32 [tokens, top_k] to sums [experts], f32 (or f64),
// in place, and returns sums. Whole numbers below 2^24 are exact in f32, so the sum does not depend on how tokens are
// split into calls. There is no gradient.
[[nodiscard]] Tensor expert_load(Tensor expert, Tensor sums);

}  // namespace hone
