// What the library does not do where an output or a gradient is f32 beside operands of bf16.
#pragma once

#include "program/kernel.h"

namespace hone {

// f32 -> bf16, rounded to nearest even.
void narrow_cuda(const KernelCall& call, const float* from, std::byte* to, std::int64_t elements);

// y [rows, n] += bias [n], of bf16.
void add_bias_cuda(const KernelCall& call, float* y, const std::byte* bias, std::int64_t rows, std::int64_t n);

}  // namespace hone
