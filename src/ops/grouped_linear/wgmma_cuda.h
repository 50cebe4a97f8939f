// The products of grouped_linear on Hopper's tensor cores (wgmma_product.cuh).
#pragma once

#include <cstdint>

#include "backend/gpu/runtime.h"
#include "program/kernel.h"

namespace hone {

// Operands of a product. `rows` are x or dy, in the order of experts; `other` is the weight or, for the gradient of the
// weight, x. `out` is y, dx or dweight.
struct GroupedOperands {
  const TensorView& rows;
  const TensorView& other;
  const TensorView& start;
  const TensorView& out;
  std::int64_t experts;
  const float* accumulated = nullptr;  // GroupedArgs::accumulated
};

// Launch y = x W^T, dx = dy W and dweight += dy^T x. Each returns false and does nothing unless the device is of
// compute capability 9.0, rows and other are bf16 (dweight: bf16 or f32), and all rows are multiples of 16 bytes.
[[nodiscard]] bool launch_grouped_forward(const GroupedOperands& operands, cudaStream_t stream);
[[nodiscard]] bool launch_grouped_input(const GroupedOperands& operands, cudaStream_t stream);
[[nodiscard]] bool launch_grouped_weight(const GroupedOperands& operands, cudaStream_t stream);

}  // namespace hone
