// GEMMs with cuBLASLt. The library is loaded at the first use, so that hone starts faster and without it.
#pragma once

#include <memory>

#include "backend/gemm.h"
#include "backend/gemm_tuning.h"
#include "backend/gpu/runtime.h"

namespace hone {

// Workspace of every GEMM, in bytes.
inline constexpr std::size_t kCublasWorkspace = std::size_t{32} << 20;
// Alignment of extents, in elements. If the contiguous extent of a bf16 operand is not a multiple of it, cuBLASLt's
// kernels reach only a sixth of their rate, even if the rows are aligned. Cublas::gemm() therefore splits such a GEMM
// with aligned rows into an aligned part and the remainder. It splits k only if c is wider than bf16, because a split
// of k rounds c twice.
inline constexpr std::int64_t kCublasAlignment = 8;

struct ScaledGemmArgs;  // backend/cuda/scaled_gemm.h

class Cublas {
 public:
  Cublas();  // throws Error if the library is not found
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;
  ~Cublas();

  // Enqueues a GEMM. Sums are f32 (f64 for f64 operands); products of bf16 operands are exact, those of f32 operands do
  // not use TF32. All GEMMs with the same GemmKey run the same kernel. Pointers must be aligned to 16 bytes, and
  // args.workspace must have kCublasWorkspace bytes.
  void gemm(const GemmArgs& args, cudaStream_t stream);
  // Enqueues a GEMM of e4m3 operands. Throws Error if the library has no algorithm for it on this GPU.
  void scaled_gemm(const ScaledGemmArgs& args, cudaStream_t stream);
  // Implements set_gemm_tuning(). No GEMM may be running.
  void set_tuning(const GemmTuning& tuning);

 private:
#ifdef HONE_HIP
  struct RocblasState;
  std::unique_ptr<RocblasState> state_;
#else
  struct State;
  std::unique_ptr<State> state_;
#endif
};

}  // namespace hone
