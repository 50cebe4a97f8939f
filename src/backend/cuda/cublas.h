// Matrix products by cuBLASLt, which is opened at the first use, so that hone starts without it.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "backend/gemm.h"
#include "backend/gemm_tuning.h"

namespace hone {

// Bytes of workspace that every product may use.
inline constexpr std::size_t kCublasWorkspace = std::size_t{32} << 20;
// Elements. Where an extent that lies contiguous in an operand of bf16 is no multiple of it, the library's kernels
// reach a sixth of their rate, however rows are aligned. Such a product is made as two where rows are aligned, one of
// them of the remainder; that of k only where c is wider than bf16, since it is rounded twice.
inline constexpr std::int64_t kCublasUnit = 8;

class Cublas {
 public:
  Cublas();  // throws Error where the library is not found
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;
  ~Cublas();

  // Sums in f32 (f64 for f64); bf16 operands are multiplied exactly, f32 ones without TF32. A product of a given key
  // always runs the same kernel. Pointers must be multiples of 16 bytes.
  void gemm(const GemmArgs& args, cudaStream_t stream);
  // As set_gemm_tuning says; nothing may be running.
  void set_tuning(const GemmTuning& tuning);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hone
