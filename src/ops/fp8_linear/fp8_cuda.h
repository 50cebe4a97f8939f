// Kernels for FP8 weights on a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/fp8_linear/fp8_linear.h"

namespace hone {

// Writes rows [row, row + rows) of the weight as bf16 to `to` [rows, k].
void dequantize_fp8(const Fp8Product& product, std::int64_t row, std::int64_t rows, void* to, cudaStream_t stream);

}  // namespace hone
