// GEMM of two bf16 matrices by AMX_BF16 or AVX512_BF16 (bf16_products.h), which gemm() calls.
//
// As in gemm(), a row of a result is bitwise the same for any number of rows and threads and any blocking: k is divided
// into blocks of 32 from its start, the last one filled with zeros, and the sum of each block is added to the element
// in order. The instructions take subnormal numbers for 0.
#pragma once

#include <cstddef>

#include "backend/gemm.h"
#include "core/block_scales.h"

namespace hone {

// Requires a in bf16, c and bias in f32 or bf16. b is bf16, or the bytes of e4m3 (u8) with `scales` (gemm_fp8.h).
void gemm_bf16(const GemmArgs& args, const BlockScales& scales = {});

// Workspace of one thread that suffices for any smaller m and k.
[[nodiscard]] std::size_t gemm_bf16_share(const GemmArgs& args);

}  // namespace hone
