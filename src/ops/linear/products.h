// The three matrix products of a linear layer at full capacity, without their operands.
#pragma once

#include <cstdint>

#include "backend/gemm.h"
#include "program/type.h"

namespace hone {

// Elements: rows of logits that are made for fast products are padded to a multiple of it, wherever they are made, so
// that a token's logits are made by one kernel and have the same bits.
inline constexpr std::int64_t kLogitStride = 64;

// y = x W^T
[[nodiscard]] GemmArgs linear_product(const Type& x, const Type& weight, const Type& y);
// dx = dy W
[[nodiscard]] GemmArgs linear_input_product(const Type& dy, const Type& weight, const Type& dx);
// dW += dy^T x
[[nodiscard]] GemmArgs linear_weight_product(const Type& dy, const Type& x, const Type& dweight);

}  // namespace hone
