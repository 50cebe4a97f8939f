// y = x W^T of quantized rows on Hopper's tensor cores, with the same bits for any number of rows (wgmma_rows.cuh).
#pragma once

#include "backend/gpu/runtime.h"
#include "program/kernel.h"

namespace hone {

// Launches a scaled_linear() of any rows (ScaledLinearAttributes). Throws Error on a device without wgmma.
void launch_scaled_rows(const KernelCall& call, cudaStream_t stream);

}  // namespace hone
