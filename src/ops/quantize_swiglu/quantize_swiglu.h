// Swiglu, or its backward pass, and the quantization of what it computes (ops/quantize), each fused into one operation,
// so that the result in bf16 is never written.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include "ops/quantize/quantize.h"
#include "program/op.h"
#include "program/program.h"

namespace hone {

// Indices of the inputs. The outputs of both operations are those of quantize.
struct QuantizeSwigluBackwardIn {
  enum : std::size_t { dy, gate_up };
};

// Returns quantize(swiglu(gate_up)) for gate_up bf16 [rows, 2 n], n a multiple of 128, with the same bits, gradients
// included. Throws Error if the type does not fit.
[[nodiscard]] QuantizedRows quantize_swiglu(Tensor gate_up, const QuantizeAttributes& attributes);

// Throws Error that begins with `op` if the shape of gate_up is not [rows, 2 n], n a multiple of 128.
void expect_gate_up(const Type& gate_up, std::string_view op);

// Returns `cost` with `flops` for each number of a quantized result.
[[nodiscard]] Cost elementwise_cost(Cost cost, double flops, std::span<const Type> outputs);

// Returns the fusion of node `first`, a swiglu_backward whose dy has a multiple of 128 columns, with the `quantize` (an
// operation that quantizes its first input) that alone reads its result.
[[nodiscard]] std::optional<Fusion> backward_fused_with_quantize(const Program& program, std::size_t first,
                                                                 std::string_view quantize);

}  // namespace hone
