// GEMM on the CPU with bitwise reproducible results.
//
// Each element of a result is one chain of fused multiply-adds over k in ascending order, in f32 (f64 if all types are
// f64), which starts at 0 or, when accumulating, at the old value of the element. No sum is ever split. A row of a
// result is therefore bitwise the same for any number of rows, number of threads, blocking and vector width. Products
// of two bf16 matrices may be summed in another order (bf16_products.h), which depends on none of these either.
#pragma once

#include <cstddef>

#include "backend/gemm.h"

namespace hone {

// A workspace smaller than gemm_workspace_bytes(args, threads) reduces the number of threads; it must suffice for one.
void gemm(const GemmArgs& args);

// Workspace with which gemm() of these types and sizes, and of any smaller m and k, uses up to `threads` threads. At
// most a few MiB per thread.
[[nodiscard]] std::size_t gemm_workspace_bytes(const GemmArgs& args, int threads);

}  // namespace hone
