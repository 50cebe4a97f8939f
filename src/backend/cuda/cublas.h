// Matrix products by cuBLASLt, which is opened at the first use, so that hone starts without it.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <compare>
#include <map>
#include <memory>

#include "backend/gemm.h"

namespace hone {

// Bytes of workspace that every product may use.
inline constexpr std::size_t kCublasWorkspace = std::size_t{32} << 20;

// What decides how a product is computed.
struct GemmKey {
  std::int64_t m, n, k, lda, ldb, ldc;
  bool transpose_a, transpose_b, accumulate, bias;
  DType a_type, b_type, c_type;
  auto operator<=>(const GemmKey&) const = default;
};

class Cublas {
 public:
  Cublas();  // throws Error where the library is not found
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;
  ~Cublas();

  // Sums in f32 (f64 for f64); bf16 operands are multiplied exactly, f32 ones without TF32. A product of a given key
  // always runs the same kernel. Pointers must be multiples of 16 bytes.
  void gemm(const GemmArgs& args, cudaStream_t stream);

 private:
  struct Library;
  struct Plan;

  const Plan& plan(const GemmKey& key);

  std::unique_ptr<Library> library_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<GemmKey, std::unique_ptr<Plan>> plans_;
};

}  // namespace hone
