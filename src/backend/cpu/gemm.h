// Matrix products on the CPU.
//
// Each element of a result is one chain of fused multiply-adds over k in ascending order, in f32 (f64 where everything
// is f64), begun at 0 or, when accumulating, at the element's old value. No sum is ever split. A row of a result is
// therefore bitwise the same whatever the number of rows, the number of threads, the blocking and the width of the
// machine's vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"

namespace hone {

enum class Transpose : std::uint8_t { no, yes };

// C[m, n] = op(A)[m, k] op(B)[k, n] + bias[n], or C += op(A) op(B). Row-major; a leading dimension is the distance of
// two rows in elements. The three products of a linear layer with weight W[out, in]:
//   forward           Y[t, out]  = X[t, in] W^T       m = t,   n = out, k = in,  transpose_b
//   input gradient    dX[t, in]  = dY[t, out] W       m = t,   n = in,  k = out
//   weight gradient   dW[out, in] += dY^T X           m = out, n = in,  k = t,   transpose_a, accumulate
struct GemmArgs {
  std::int64_t m = 0, n = 0, k = 0;
  Transpose transpose_a = Transpose::no, transpose_b = Transpose::no;
  DType a_type = DType::f32, b_type = DType::f32, c_type = DType::f32;  // all f64, or any of f32 and bf16
  const void* a = nullptr;                                              // [m, k]; [k, m] if transposed
  const void* b = nullptr;                                              // [k, n]; [n, k] if transposed
  void* c = nullptr;                                                    // [m, n]; bf16 is rounded once, at the end
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  DType bias_type = DType::f32;    // as for a
  const void* bias = nullptr;      // [n], added after the chain; none if null; not together with accumulate
  bool accumulate = false;         // C += ...; not for a bf16 C
  std::span<std::byte> workspace;  // gemm_workspace_bytes(...); a smaller one costs threads, down to those for one
};

void gemm(const GemmArgs& args);

// Bytes of workspace with which gemm() of these types and sizes, and of any smaller m and k, uses up to `threads`
// threads. At most a few MiB each.
[[nodiscard]] std::size_t gemm_workspace_bytes(const GemmArgs& args, int threads);

}  // namespace hone
