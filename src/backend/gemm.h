// Arguments of a GEMM, common to all backends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.h"

namespace hone {

enum class Transpose : std::uint8_t { kNo, kYes };

// C[m, n] = op(A)[m, k] op(B)[k, n] + bias[n], or C += op(A) op(B). Matrices are row-major; a leading dimension is the
// distance between two rows in elements. The three GEMMs of a linear layer with weight W[out, in] and t tokens are:
//   forward           Y[t, out]  = X[t, in] W^T       m = t,   n = out, k = in,  transpose_b
//   input gradient    dX[t, in]  = dY[t, out] W       m = t,   n = in,  k = out
//   weight gradient   dW[out, in] += dY^T X           m = out, n = in,  k = t,   transpose_a, accumulate
struct GemmArgs {
  std::int64_t m = 0, n = 0, k = 0;
  Transpose transpose_a = Transpose::kNo, transpose_b = Transpose::kNo;
  DType a_type = DType::kF32, b_type = DType::kF32, c_type = DType::kF32;  // all f64, or each either f32 or bf16
  const void* a = nullptr;                                                 // [m, k]; [k, m] if transposed
  const void* b = nullptr;                                                 // [k, n]; [n, k] if transposed
  void* c = nullptr;  // [m, n]; bf16 is rounded once, after the sum
  std::int64_t lda = 0, ldb = 0, ldc = 0;
  DType bias_type = DType::kF32;  // restricted like a_type
  const void* bias = nullptr;     // [n], added after the sum over k; null: none; must be null with accumulate
  bool accumulate = false;        // C += ..., rounded once
  // On a GPU, with accumulate: null, or the address in its memory of the factor of what C holds, 0 or 1. With 0 C may
  // hold anything.
  const float* accumulated = nullptr;
  std::span<std::byte> workspace;  // scratch buffer of the size that the backend requires
};

}  // namespace hone
