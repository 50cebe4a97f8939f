// The FP8 passes: have linear layers multiply in e4m3, while a model trains and in generation by FP8 weights.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <string>

#include "program/program.h"

namespace hone {

// Names of the weights whose products are to be in FP8.
using Fp8Weights = std::set<std::string, std::less<>>;

// Where a training program takes the e4m3 copies of its weights from. The bits are the same.
enum class Fp8Copies : std::uint8_t {
  kMade,  // the forward pass quantizes a weight W, the backward pass W^T, or W again for experts
  kKept,  // the forward pass quantizes both and keeps them for the backward pass
  kHeld,  // both are states, which quantization_of() writes: once for all micro-batches of a step
};

// Returns the program with each linear() and grouped_linear() by one of these weights, all bf16 with matrices whose
// dimensions are multiples of 128, replaced by scaled_linear() or scaled_grouped_linear() of its quantized operands.
// Linear layers that read the same value share its quantized copy, which has the columns for the weight gradient if
// `training` and the weight is trainable. To be run when types are final and before gradients are taken, so that the
// backward pass is in FP8 too. copies: of a program that trains. Throws Error if the rows of an operand are no multiple
// of kQuantizedRows.
[[nodiscard]] Program with_fp8(const Program& program, const Fp8Weights& weights, bool training,
                               Fp8Copies copies = Fp8Copies::kMade);

// Returns the program with each fp8_linear() that quantizes its x (Fp8LinearAttributes) replaced by scaled_linear() of
// the quantized x, one copy for all layers that read the same value, with any number of rows. Each row has the bits of
// the training program's forward pass on a CPU if the scales of the weight are those that quantize_weight() computes.
// To be run when types are final.
[[nodiscard]] Program with_quantized_inputs(const Program& program);

// Returns the program that quantizes the weights into the states of a program with Fp8Copies::kHeld. It has no node if
// there are none. To be run after each change of the weights and before the program that reads the states.
[[nodiscard]] Program quantization_of(const Program& training);

// Bytes of these states.
[[nodiscard]] std::size_t held_fp8_bytes(const Program& training);

}  // namespace hone
