// Swiglu of the rows of experts, or its backward pass, and their quantization (ops/quantize_experts), each fused into
// one operation, so that the result in bf16 is never written.
#pragma once

#include <cstddef>

#include "ops/quantize_experts/quantize_experts.h"
#include "program/program.h"

namespace hone {

// Indices of the inputs. The outputs of both operations are those of quantize.
struct QuantizeExpertsSwigluIn {
  enum : std::size_t { gate_up, start };
};
struct QuantizeExpertsSwigluBackwardIn {
  enum : std::size_t { dy, gate_up, start };
};

// Returns quantize_experts(swiglu(gate_up), start) for gate_up bf16 [rows, 2 n], n a multiple of 128, with the same
// bits, gradients included. Throws Error if the types do not fit.
[[nodiscard]] QuantizedRows quantize_experts_swiglu(Tensor gate_up, Tensor start,
                                                    const QuantizeExpertsAttributes& attributes);

}  // namespace hone
