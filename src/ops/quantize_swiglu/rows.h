// Swiglu and its gradient in bf16 on the CPU, in the scratch memory of the operations that quantize them.
#pragma once

#include <cstddef>

#include "ops/quantize/quantize.h"
#include "ops/swiglu/rows.h"
#include "program/kernel.h"

namespace hone {

// Computes y [rows, n] of gate_up [rows, 2 n] in the workspace of a call.
inline const BFloat16* swiglu_rows(const KernelCall& call, const TensorView& gate_up) {
  const std::int64_t n = gate_up.row_size() / 2;
  const auto* from = gate_up.as<BFloat16>();
  auto* y = reinterpret_cast<BFloat16*>(call.workspace.data());
  for_rows(gate_up.rows(), 8 * n, [&](std::int64_t row) {
    const BFloat16* gate = from + row * 2 * n;
    swiglu_row(gate, gate + n, n, y + row * n);
  });
  return y;
}

// Computes dgate_up [rows, 2 n] of dy [rows, n] and gate_up in the workspace of a call.
inline const BFloat16* swiglu_gradient_rows(const KernelCall& call, const TensorView& dy, const TensorView& gate_up) {
  const std::int64_t n = dy.row_size();
  const auto* dys = dy.as<BFloat16>();
  const auto* gate_ups = gate_up.as<BFloat16>();
  auto* dgate_ups = reinterpret_cast<BFloat16*>(call.workspace.data());
  for_rows(dy.rows(), 8 * n, [&](std::int64_t row) {
    const BFloat16* gate = gate_ups + row * 2 * n;
    BFloat16* dgate = dgate_ups + row * 2 * n;
    swiglu_backward_row(dys + row * n, gate, gate + n, n, dgate, dgate + n);
  });
  return dgate_ups;
}

// Bytes of workspace for what is quantized.
inline std::size_t quantize_swiglu_workspace(InputTypes, std::span<const Type> outputs, const Attributes&) {
  return static_cast<std::size_t>(outputs[QuantizeOut::rows].elements()) * sizeof(BFloat16);
}

}  // namespace hone
