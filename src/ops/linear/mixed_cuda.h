// Conversions around cuBLASLt for mixed dtypes: an f32 output or gradient with bf16 operands.
#pragma once

#include "program/kernel.h"

namespace hone {

// Converts f32 to bf16, rounded to nearest even.
void narrow_cuda(const KernelCall& call, const float* from, std::byte* to, std::int64_t elements);

// Adds bias [n], which is bf16, to each row of y [rows, n].
void add_bias_cuda(const KernelCall& call, float* y, const std::byte* bias, std::int64_t rows, std::int64_t n);

}  // namespace hone
