// Weighted sum of a loss over its tokens: the sum over t of weight[t] * value[t].
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct WeightedSumIn {
  enum : std::size_t { values, weights };
};
struct WeightedSumBackwardIn {
  enum : std::size_t { dy, weights };
};

// Returns the sum [1] for values and weights [rows], f32 (f64 in programs of f64). It is computed in double in a fixed
// order and rounded once. An entry whose weight is 0 adds nothing and gets gradient 0, even if its value is not finite.
// The weights get no gradient.
[[nodiscard]] Tensor weighted_sum(Tensor values, Tensor weights);

}  // namespace hone
