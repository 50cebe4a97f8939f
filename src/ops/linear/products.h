// Shapes of the three GEMMs of a linear layer at full capacity; the caller fills in the operands.
#pragma once

#include <cstdint>

#include "backend/gemm.h"
#include "program/type.h"

namespace hone {

// Row stride of logits in scratch memory, in elements, is a multiple of this. Everything that computes logits uses it,
// so that cuBLASLt takes one kernel for a token's logits and they have the same bits everywhere.
inline constexpr std::int64_t kLogitStride = 64;

// y = x W^T
[[nodiscard]] GemmArgs linear_product(const Type& x, const Type& weight, const Type& y);
// dx = dy W
[[nodiscard]] GemmArgs linear_input_product(const Type& dy, const Type& weight, const Type& dx);
// dW += dy^T x
[[nodiscard]] GemmArgs linear_weight_product(const Type& dy, const Type& x, const Type& dweight);

}  // namespace hone
