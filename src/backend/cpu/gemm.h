// Matrix products on the CPU.
//
// Each element of a result is one chain of fused multiply-adds over k in ascending order, in f32 (f64 where everything
// is f64), begun at 0 or, when accumulating, at the element's old value. No sum is ever split. A row of a result is
// therefore bitwise the same whatever the number of rows, the number of threads, the blocking and the width of the
// machine's vectors.
#pragma once

#include <cstddef>

#include "backend/gemm.h"

namespace hone {

// The workspace may be smaller than gemm_workspace_bytes says: that costs threads, down to one.
void gemm(const GemmArgs& args);

// Bytes of workspace with which gemm() of these types and sizes, and of any smaller m and k, uses up to `threads`
// threads. At most a few MiB each.
[[nodiscard]] std::size_t gemm_workspace_bytes(const GemmArgs& args, int threads);

}  // namespace hone
