// Swiglu, or its backward pass, and the quantization of what it computes (ops/quantize), each fused into one operation,
// so that the result in bf16 is never written.
#pragma once

#include <cstddef>

#include "ops/quantize/quantize.h"
#include "program/program.h"

namespace hone {

// Indices of the inputs. The outputs of both operations are those of quantize.
struct QuantizeSwigluBackwardIn {
  enum : std::size_t { dy, gate_up };
};

// Returns quantize(swiglu(gate_up)) for gate_up bf16 [rows, 2 n], n a multiple of 128, with the same bits, gradients
// included. Throws Error if the type does not fit.
[[nodiscard]] QuantizedRows quantize_swiglu(Tensor gate_up, const QuantizeAttributes& attributes);

}  // namespace hone
