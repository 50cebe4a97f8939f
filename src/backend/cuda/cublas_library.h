// The functions of cuBLASLt that are used, and one product by it.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "backend/cuda/cublas.h"
#include "backend/gemm_table.h"
#include "core/error.h"

namespace hone {

// The library, opened. Its handle is never destroyed: the device that owns it lives as long as the process.
class CublasLibrary {
 public:
  CublasLibrary();  // throws Error where it is not found
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

// A product of one key by any of its algorithms.
class CublasProduct {
 public:
  CublasProduct(const CublasLibrary& library, const GemmKey& key);
  CublasProduct(const CublasProduct&) = delete;
  CublasProduct& operator=(const CublasProduct&) = delete;
  ~CublasProduct();

  [[nodiscard]] const GemmKey& key() const { return key_; }
  // The library's choice: as for many rows, so that few rows are summed by the same kind of kernel as many, and without
  // a split of k, but for a weight gradient, which sums over the rows. Throws Error where there is none.
  [[nodiscard]] cublasLtMatmulAlgo_t first() const;
  // What the library proposes for so many rows, twice, four times and half as many, as far as allows() is true of it.
  // No variants of one's own: with cluster shapes and options put in, a search of small products died of SIGFPE.
  [[nodiscard]] std::vector<cublasLtMatmulAlgo_t> proposals() const;
  // Whether the library can run it within the workspace and it keeps the rule of first().
  [[nodiscard]] bool allows(const cublasLtMatmulAlgo_t& algorithm) const;
  [[nodiscard]] std::string describe(const cublasLtMatmulAlgo_t& algorithm) const;

  struct Operands {
    const void* a;
    const void* b;
    void* c;
    const void* bias;
    void* workspace;  // kCublasWorkspace bytes
  };
  // Gives the product to the stream.
  [[nodiscard]] cublasStatus_t run(const cublasLtMatmulAlgo_t& algorithm, const Operands& operands,
                                   cudaStream_t stream) const;

 private:
  // The best first; none where the library knows none.
  [[nodiscard]] std::vector<cublasLtMatmulAlgo_t> heuristic(std::int64_t rows, int most) const;

  const CublasLibrary& library_;
  GemmKey key_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
};

}  // namespace hone
