// Rounding a gradient to the type of the operands that it is multiplied with.
#pragma once

#include "program/kernel.h"

namespace hone {

// f32 -> bf16, rounded to nearest even; a kernel that is one launch.
void narrow_cuda(const KernelCall& call, const float* from, std::byte* to, std::int64_t elements);

}  // namespace hone
