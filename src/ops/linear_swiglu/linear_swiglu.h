// Linear layer of gate and up and the swiglu of what it computes, fused into one operation, so that the two are never
// written where the product has few rows (decoding). Nothing is left for a backward pass: the fusion pass makes it in
// programs without gradients only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace hone {

// Indices of the inputs.
struct LinearSwigluIn {
  enum : std::size_t { x, weight, bias };
};

// Most rows of a product that is fused. More are multiplied by the kernels of `linear`.
inline constexpr std::int64_t kMostLinearSwigluRows = 128;

// Returns swiglu(linear(x, weight, bias)) [rows, n] for x [rows, k], weight [2 n, k], whose rows are those of gate and
// then those of up, and bias [2 n] or none, with the same bits. There is no gradient. Throws Error if the types do not
// fit.
[[nodiscard]] Tensor linear_swiglu(Tensor x, Tensor weight, Tensor bias = {});

}  // namespace hone
