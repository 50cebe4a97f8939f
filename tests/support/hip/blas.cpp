// The library of GEMMs of the emulated GPU: plain loops on the CPU.
#include "backend/cuda/cublas.h"
#include "core/dtype.h"
#include "core/error.h"
#include "support/hip/emulator.h"

namespace hone {
namespace {

double element(const void* data, DType type, std::int64_t at) {
  switch (type) {
    case DType::kF32:
      return static_cast<const float*>(data)[at];
    case DType::kF64:
      return static_cast<const double*>(data)[at];
    default:
      return static_cast<double>(static_cast<float>(static_cast<const BFloat16*>(data)[at]));
  }
}

void store(void* data, DType type, std::int64_t at, double value) {
  switch (type) {
    case DType::kF32:
      static_cast<float*>(data)[at] = static_cast<float>(value);
      break;
    case DType::kF64:
      static_cast<double*>(data)[at] = value;
      break;
    default:
      static_cast<BFloat16*>(data)[at] = BFloat16(static_cast<float>(value));
  }
}

void multiply(const GemmArgs& args) {
  for (std::int64_t i = 0; i < args.m; ++i) {
    for (std::int64_t j = 0; j < args.n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < args.k; ++l) {
        const std::int64_t a = args.transpose_a == Transpose::kYes ? l * args.lda + i : i * args.lda + l;
        const std::int64_t b = args.transpose_b == Transpose::kYes ? j * args.ldb + l : l * args.ldb + j;
        sum += element(args.a, args.a_type, a) * element(args.b, args.b_type, b);
      }
      if (args.bias != nullptr) sum += element(args.bias, args.bias_type, j);
      const std::int64_t at = i * args.ldc + j;
      if (args.accumulate) sum += element(args.c, args.c_type, at);
      store(args.c, args.c_type, at, sum);
    }
  }
}

}  // namespace

struct Cublas::State {};
Cublas::Cublas() = default;
Cublas::~Cublas() = default;
void Cublas::set_tuning(const GemmTuning&) {}
void Cublas::gemm(const GemmArgs& args, cudaStream_t stream) {
  emulation::submit(stream, [args] { multiply(args); });
}
void Cublas::scaled_gemm(const ScaledGemmArgs&, cudaStream_t) { throw Defect("the emulated GPU multiplies no e4m3"); }

}  // namespace hone
