// The three matrix products of a linear layer at full capacity, without their operands.
#pragma once

#include "backend/gemm.h"
#include "program/type.h"

namespace hone {

// y = x W^T
[[nodiscard]] GemmArgs linear_product(const Type& x, const Type& weight, const Type& y);
// dx = dy W
[[nodiscard]] GemmArgs linear_input_product(const Type& dy, const Type& weight, const Type& dx);
// dW += dy^T x
[[nodiscard]] GemmArgs linear_weight_product(const Type& dy, const Type& x, const Type& dweight);

}  // namespace hone
