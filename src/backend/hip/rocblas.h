// The part of rocBLAS that hone uses, which is opened at run time: declarations need no package of ROCm. Names, values
// and meanings are those of rocblas.h.
#pragma once

#include "backend/gpu/runtime.h"

namespace hone {

using RocblasHandle = void*;
using RocblasStatus = int;  // 0: success

enum RocblasOperation : int { kRocblasNone = 111, kRocblasTranspose = 112 };
enum RocblasType : int { kRocblasF32 = 151, kRocblasF64 = 152, kRocblasBf16 = 168 };
inline constexpr int kRocblasStandard = 0;   // rocblas_gemm_algo_standard
inline constexpr int kRocblasNoAtomics = 0;  // rocblas_atomics_not_allowed

// The loaded library.
class RocblasLibrary {
 public:
  RocblasLibrary();  // throws Error if the library is not found

  // Throws Error naming the call unless `status` is success.
  static void check(RocblasStatus status, const char* call);

  RocblasStatus (*create)(RocblasHandle*) = nullptr;
  RocblasStatus (*set_stream)(RocblasHandle, hipStream_t) = nullptr;
  RocblasStatus (*set_atomics)(RocblasHandle, int mode) = nullptr;
  // d = alpha op(a) op(b) + beta c; all matrices are column-major.
  RocblasStatus (*gemm)(RocblasHandle, RocblasOperation of_a, RocblasOperation of_b, int m, int n, int k,
                        const void* alpha, const void* a, RocblasType a_type, int lda, const void* b,
                        RocblasType b_type, int ldb, const void* beta, const void* c, RocblasType c_type, int ldc,
                        void* d, RocblasType d_type, int ldd, RocblasType compute_type, int algorithm, int solution,
                        unsigned flags) = nullptr;
};

}  // namespace hone
