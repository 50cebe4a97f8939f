// AdamW with moments of 8 bits an element, in the format of bitsandbytes (dynamic_map.h).
#pragma once

#include <cstddef>

#include "ops/adamw/adamw.h"
#include "ops/adamw_8bit/dynamic_map.h"

namespace hone {

// Indices of the inputs and outputs.
struct Adamw8bitIn {
  enum : std::size_t { weight, gradient, m, v, m_scale, v_scale, norm, hyper, bad };
};
struct Adamw8bitOut {
  enum : std::size_t { weight, gradient, m, v, m_scale, v_scale };
};

// A weight and its optimizer state. The weight is f32 or bf16; bf16 is rounded stochastically, and there is no master
// weight. The gradient is f32 or of the weight's dtype.
struct Adamw8bitTensors {
  Tensor weight;
  Tensor gradient;
  Tensor m;        // u8, codes of the signed map; zeros at first, like the scales
  Tensor v;        // u8, codes of the unsigned map
  Tensor m_scale;  // f32[scales_of(weight)]
  Tensor v_scale;
};

// Number of scales: one for each block of kStateBlock elements, of which the last may have fewer.
[[nodiscard]] constexpr std::int64_t scales_of(std::int64_t elements) {
  return (elements + kStateBlock - 1) / kStateBlock;
}

// Appends the update of a weight and its state, in place, and returns the updated tensors; the gradient is zero
// afterwards, for the next accumulation. The weight moves by the moments before they are quantized. Codes and scales
// are the same on every device. Throws Error if the types do not fit.
Adamw8bitTensors adamw_8bit(const Adamw8bitTensors& tensors, const AdamwStep& step, const AdamwAttributes& attributes);

}  // namespace hone
