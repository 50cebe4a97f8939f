// The FP8 pass: has linear layers multiply in e4m3 while a model trains.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "program/program.h"

namespace hone {

// Names of the weights whose products are to be in FP8.
using Fp8Weights = std::set<std::string, std::less<>>;

// Returns the program with each linear() by one of these weights, all bf16 with dimensions that are multiples of 128,
// replaced by scaled_linear() of its quantized operands. Layers that read the same value share its quantized copy,
// which has the columns for the weight gradient if `training` and the weight is trainable. To be run when types are
// final and before gradients are taken, so that the backward pass is in FP8 too. keeps: the transposed copy of a weight
// that the backward pass reads is made with the weight in the forward pass and kept; otherwise the backward pass
// quantizes it. The bits are the same. Throws Error if the rows of an operand are no multiple of kQuantizedRows.
[[nodiscard]] Program with_fp8(const Program& program, const Fp8Weights& weights, bool training, bool keeps = false);

}  // namespace hone
