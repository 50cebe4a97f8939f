// Wrappers of cuBLASLt: the dynamically loaded library, and one GEMM with its descriptors and algorithms.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "backend/cuda/cublas.h"
#include "backend/gemm_table.h"
#include "core/error.h"

namespace hone {

// The loaded library and its handle, which is never destroyed: the device that owns it lives as long as the process.
class CublasLibrary {
 public:
  CublasLibrary();  // throws Error if the library is not found
  CublasLibrary(const CublasLibrary&) = delete;
  CublasLibrary& operator=(const CublasLibrary&) = delete;

  [[nodiscard]] cublasLtHandle_t handle() const { return handle_; }

 private:
  void* library_;

 public:
  template <class Function>
  Function* function(const char* name) const;
// A declaration: NOLINTNEXTLINE(bugprone-macro-parentheses)
#define HONE_CUBLAS(name) decltype(::name)* name = function<decltype(::name)>(#name)
  HONE_CUBLAS(cublasLtCreate);
  HONE_CUBLAS(cublasLtGetVersion);
  HONE_CUBLAS(cublasLtMatmul);
  HONE_CUBLAS(cublasLtMatmulDescCreate);
  HONE_CUBLAS(cublasLtMatmulDescDestroy);
  HONE_CUBLAS(cublasLtMatmulDescSetAttribute);
  HONE_CUBLAS(cublasLtMatrixLayoutCreate);
  HONE_CUBLAS(cublasLtMatrixLayoutDestroy);
  HONE_CUBLAS(cublasLtMatmulPreferenceCreate);
  HONE_CUBLAS(cublasLtMatmulPreferenceDestroy);
  HONE_CUBLAS(cublasLtMatmulPreferenceSetAttribute);
  HONE_CUBLAS(cublasLtMatmulAlgoGetHeuristic);
  HONE_CUBLAS(cublasLtMatmulAlgoCheck);
  HONE_CUBLAS(cublasLtMatmulAlgoConfigGetAttribute);
#undef HONE_CUBLAS

 private:
  cublasLtHandle_t handle_ = nullptr;
};

// Throws Error naming the call unless `status` is success.
void check_cublas(cublasStatus_t status, const std::string& call);

// GEMM of one key, which can run with any of its algorithms.
class CublasGemm {
 public:
  CublasGemm(const CublasLibrary& library, const GemmKey& key);
  CublasGemm(const CublasGemm&) = delete;
  CublasGemm& operator=(const CublasGemm&) = delete;
  ~CublasGemm();

  [[nodiscard]] const GemmKey& key() const { return key_; }
  // Returns the library's default algorithm. To keep results independent of the batch, it is the default for at least
  // 256 rows, so that few rows are summed by the same kind of kernel as many, and it has no split-K. A weight gradient,
  // which sums over the rows, may use split-K. Throws Error if there is no algorithm.
  [[nodiscard]] cublasLtMatmulAlgo_t first() const;
  // Returns the algorithms that the library proposes for this number of rows and for 2, 4 and 1/2 times as many, if
  // allows() accepts them. Hand-made variants with other cluster shapes and options are not tried: in small GEMMs they
  // crashed the library with SIGFPE.
  [[nodiscard]] std::vector<cublasLtMatmulAlgo_t> proposals() const;
  // Returns true if the library can run the algorithm within kCublasWorkspace and it obeys the split-K rule of first().
  [[nodiscard]] bool allows(const cublasLtMatmulAlgo_t& algorithm) const;
  [[nodiscard]] std::string describe(const cublasLtMatmulAlgo_t& algorithm) const;

  struct Operands {
    const void* a;
    const void* b;
    void* c;
    const void* bias;
    void* workspace;             // kCublasWorkspace bytes
    const float* factor_of_sum;  // GemmArgs::accumulated; null: 1 if the key accumulates
  };
  // Enqueues the GEMM.
  [[nodiscard]] cublasStatus_t run(const cublasLtMatmulAlgo_t& algorithm, const Operands& operands,
                                   cudaStream_t stream) const;

 private:
  // Returns up to `most` proposals of the library for a GEMM of `rows` rows, best first.
  [[nodiscard]] std::vector<cublasLtMatmulAlgo_t> heuristic(std::int64_t rows, int most) const;

  const CublasLibrary& library_;
  GemmKey key_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
};

}  // namespace hone
