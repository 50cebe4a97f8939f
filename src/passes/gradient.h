// Reverse-mode gradients of a traced program.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/program.h"

namespace hone {

// The gradient with which the backward pass starts at a value.
struct GradientSeed {
  Tensor value;
  Tensor gradient;  // of the value's type
};

// What the gradients of weights are summed in.
enum class GradientSums : std::uint8_t {
  wide,        // f32; f64 for weights of f64
  as_weights,  // the weight's type, but for vectors (norms, biases), which stay wide: half the memory for bf16
};
[[nodiscard]] Type gradient_type(const Type& weight, GradientSums sums);

// Appends the backward pass of the program's nodes, in reverse order. The gradient of a trainable weight accumulates in
// place into program.gradient(weight's name), made here. Returns the gradients of `wanted`
// (activations or inputs), invalid where none arrives. Nodes that no trainable weight and no wanted value depends on
// get no backward pass.
std::vector<Tensor> append_gradients(Program& program, std::span<const GradientSeed> seeds,
                                     std::span<const Tensor> wanted = {}, GradientSums sums = GradientSums::wide);

}  // namespace hone
