// Reverse-mode automatic differentiation of a traced program.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "program/program.h"

namespace hone {

// A value at which the backward pass starts, and its gradient.
struct GradientSeed {
  Tensor value;
  Tensor gradient;  // of the value's type
};

// The type in which weight gradients accumulate.
enum class GradientAccumulation : std::uint8_t {
  kWide,       // f32; f64 for f64 weights
  kAsWeights,  // the weight's type, which halves the memory for bf16; vectors (norms, biases) stay wide
};
[[nodiscard]] Type gradient_type(const Type& weight, GradientAccumulation sums);

// Names of weights whose gradients the first micro-batch of a step overwrites instead of adding to zeros, so that the
// update need not clear them.
using OverwrittenGradients = std::set<std::string, std::less<>>;
// Name of the gradient f32[1] that says whether they hold sums: 0 if no micro-batch of the step has written them,
// otherwise 1. It is among the gradients so that what clears these also makes the next micro-batch the first.
inline constexpr const char* kAccumulatedFlag = "accumulated";

// Appends the backward pass of the program's nodes, in reverse order. The gradient of each trainable weight accumulates
// in place into program.gradient(NAME), which this function declares under the weight's name. Returns the gradients of
// `wanted` (activations or inputs) in that order; a tensor is invalid if no gradient reaches it. Nodes that depend on
// no trainable weight and on no wanted value get no backward pass. The first node that writes a gradient of
// `overwritten` reads kAccumulatedFlag, which it declares and leaves as it is. Throws Defect if the types of a seed's
// value and gradient differ, if that node always adds, or if there is none.
std::vector<Tensor> append_gradients(Program& program, std::span<const GradientSeed> seeds,
                                     std::span<const Tensor> wanted = {},
                                     GradientAccumulation sums = GradientAccumulation::kWide,
                                     const OverwrittenGradients& overwritten = {});

}  // namespace hone
