// GEMM on the CPU by a matrix that is stored in FP8 (core/float8.h).
#pragma once

#include "backend/gemm.h"
#include "core/block_scales.h"

namespace hone {

// Computes what gemm() does with b in bf16, b = bf16(e4m3 x scale), in every bit. b holds the bytes of e4m3 (b_type is
// u8), transposed; a is bf16. The packing of b converts it.
void gemm_fp8(const GemmArgs& args, const BlockScales& scales);

// Workspace as of gemm_workspace_bytes().
[[nodiscard]] std::size_t gemm_fp8_workspace_bytes(const GemmArgs& args, int threads);

}  // namespace hone
