// Adds the results of a token's experts with their weights.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct ExpertCombineIn {
  enum : std::size_t { y, weight, position };
};
struct ExpertCombineBackwardIn {
  enum : std::size_t { dout, y, weight, position };
};
struct ExpertCombineBackwardOut {
  enum : std::size_t { dy, dweight };
};

// Returns out [tokens, n], out[t] = sum over j of weight[t, j] y[position[t, j]], in ascending order of j and rounded
// once, for y [top_k x tokens, n], weight [tokens, top_k] of y's accumulator type and position i32 [tokens, top_k]
// (ops/expert_order). With the position and the rows of some experts (expert_order_part), whose count is another than
// that of the tokens, choices of other experts add nothing, and their weights have no gradient.
[[nodiscard]] Tensor expert_combine(Tensor y, Tensor weight, Tensor position);

}  // namespace hone
