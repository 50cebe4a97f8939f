// Kernels for FP8 weights on a GPU.
#pragma once

#include <cstdint>

#include "backend/gpu/runtime.h"
#include "ops/fp8_linear/fp8_linear.h"

namespace hone {

// Writes rows [row, row + rows) of the weight as bf16 to `to` [rows, k].
void dequantize_fp8(const Fp8Product& product, std::int64_t row, std::int64_t rows, void* to, cudaStream_t stream);

// Launches y = x W^T (+ bias) by fp8_rows_cuda.cu and returns true, or returns false if it does not support the product
// or the device (only those with wgmma, sm_90a). x [m, k] and y [m, n] are bf16, m is at most 128, and W is in
// fragments. If W is constant, no kernel of the same recorded launches writes it or its scales, and they are read while
// the kernel before is still running.
[[nodiscard]] bool launch_fp8_rows(const Fp8Product& product, bool constant_weight, cudaStream_t stream);

}  // namespace hone
