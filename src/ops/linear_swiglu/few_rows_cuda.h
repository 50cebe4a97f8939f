// Gate and up of few rows and swiglu of them on Hopper, at the rate of memory.
#pragma once

#include "program/kernel.h"

namespace hone {

// Launches linear_swiglu by few_rows_cuda.cu and returns true, or returns false if it does not support the product or
// the device, or if the library multiplies as fast. The bits are those of the two operations.
[[nodiscard]] bool launch_few_rows_swiglu(const KernelCall& call);

}  // namespace hone
