// Linear layers of few rows on Hopper, at the rate of memory and bit for bit as with many rows.
#pragma once

#include "backend/gemm.h"
#include "backend/gpu/runtime.h"

namespace hone {

// Launches y = x W^T (+ bias) by few_rows_cuda.cu and returns true, or returns false if it does not support the product
// or the device, or if the library is as fast (few_rows_pay). x [m, k] and W [n, k] are bf16, m is at most 512
// (kFewRows), n, k and the strides are multiples of 8; y is bf16 or f32. An element is one chain over k in steps of 16,
// as the library computes it for any number of rows: the bits are equal (tests/ops/few_rows_test.cpp). If W is
// constant, no kernel of the same recorded launches writes it, and it is read while the kernel before is still running.
[[nodiscard]] bool launch_few_rows(const GemmArgs& args, bool constant_weight, cudaStream_t stream);

}  // namespace hone
