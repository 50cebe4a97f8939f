// The sum of a loss over its tokens: sum over t of weight[t] * value[t].
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// The operands, in order.
struct WeightedSumIn {
  enum : std::size_t { values, weights };
};
struct WeightedSumBackwardIn {
  enum : std::size_t { dy, weights };
};

// values and weights [rows], f32 (f64 in programs of f64) -> [1]. Added in double in a fixed order and rounded once. An
// entry whose weight is 0 adds nothing and gets no gradient, whatever its value. The weights get no gradient.
[[nodiscard]] Tensor weighted_sum(Tensor values, Tensor weights);

}  // namespace hone
