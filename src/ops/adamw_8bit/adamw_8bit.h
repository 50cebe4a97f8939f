// AdamW with m and v in 8 bits an element, as bitsandbytes keeps them (dynamic_map.h).
#pragma once

#include <cstddef>

#include "ops/adamw/adamw.h"
#include "ops/adamw_8bit/dynamic_map.h"

namespace hone {

// The operands, in order.
struct Adamw8bitIn {
  enum : std::size_t { weight, gradient, m, v, m_scale, v_scale, norm, hyper, bad };
};
struct Adamw8bitOut {
  enum : std::size_t { weight, gradient, m, v, m_scale, v_scale };
};

// One weight, of f32 or bf16 (rounded stochastically then, there is no master weight), and what belongs to it. The
// gradient is f32 or the weight's type.
struct Adamw8bitTensors {
  Tensor weight;
  Tensor gradient;
  Tensor m;        // u8, codes of the signed map; all zero at first, like the scales
  Tensor v;        // u8, codes of the unsigned map
  Tensor m_scale;  // f32[scales_of(weight)]
  Tensor v_scale;
};

// Blocks of kStateBlock elements, the last one perhaps with fewer.
[[nodiscard]] constexpr std::int64_t scales_of(std::int64_t elements) {
  return (elements + kStateBlock - 1) / kStateBlock;
}

// Updates everything in place and returns it as it then stands; the gradient is zero, for the next accumulation. The
// step is taken with the moments before they are stored. Codes and scales are the same on every device.
Adamw8bitTensors adamw_8bit(const Adamw8bitTensors& tensors, const AdamwStep& step, const AdamwAttributes& attributes);

}  // namespace hone
