// GEMMs of e4m3 operands with scales for blocks of 128, by cuBLASLt on compute capability 9.0.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>

#include "backend/cuda/cublas_library.h"
#include "core/dtype.h"

namespace hone {

// C[m, n] = A B^T + bias[n], or C += A B^T, with A [m, k] and B [n, k] in e4m3. Sums are f32; C is rounded once.
// cuBLASLt multiplies matrices of e4m3 only if both are contiguous along k, hence the one form. Sizes: m a multiple of
// 8, n and k of 16; the last blocks may be smaller. Pointers are aligned to 16 bytes.
struct ScaledGemmArgs {
  std::int64_t m = 0, n = 0, k = 0;
  const std::uint8_t* a = nullptr;  // [m, k]
  const float* a_scale = nullptr;   // [ceil(k / 128), m]: one scale for each 128 numbers of a row
  const std::uint8_t* b = nullptr;  // [n, k]
  const float* b_scale = nullptr;   // [ceil(n / 128), ceil(k / 128)], rows of it padded to a multiple of 4
  DType c_type = DType::kBf16;      // bf16 or f32
  void* c = nullptr;                // [m, n]
  const void* bias = nullptr;       // bf16 [n]; null: none; must be null with accumulate
  bool accumulate = false;
  const float* accumulated = nullptr;  // GemmArgs::accumulated
  std::span<std::byte> workspace;      // kCublasWorkspace bytes
};

// Runs such GEMMs, and keeps the algorithm of each size. A sum is never split, so that results do not depend on m.
class ScaledGemms {
 public:
  // library: must outlive the object
  explicit ScaledGemms(const CublasLibrary& library);
  ScaledGemms(const ScaledGemms&) = delete;
  ScaledGemms& operator=(const ScaledGemms&) = delete;
  ~ScaledGemms();

  // Enqueues a GEMM. Throws Error if the library has no algorithm for it on this GPU.
  void run(const ScaledGemmArgs& args, cudaStream_t stream);

 private:
  struct Plan;
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, DType, bool>;

  const Plan& plan(const ScaledGemmArgs& args);

  const CublasLibrary& library_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
};

}  // namespace hone
