// The library of GEMMs of the emulated GPU: plain loops on the CPU.
#include <numeric>
#include <vector>

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

// The rows [rows, k] of an operand in f64; `across` elements from one row to the next and `along` within a row.
std::vector<double> rows_of(const void* data, DType type, std::int64_t rows, std::int64_t k, std::int64_t across,
                            std::int64_t along) {
  std::vector<double> values(static_cast<std::size_t>(rows * k));
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t l = 0; l < k; ++l) {
      values[static_cast<std::size_t>(i * k + l)] = element(data, type, i * across + l * along);
    }
  }
  return values;
}

void multiply(const GemmArgs& args) {
  const bool a_turned = args.transpose_a == Transpose::kYes;
  const bool b_turned = args.transpose_b == Transpose::kYes;
  const bool adds = args.accumulate && (args.accumulated == nullptr || *args.accumulated != 0);
  const std::int64_t k = args.k;
  const std::vector<double> a =
      rows_of(args.a, args.a_type, args.m, k, a_turned ? 1 : args.lda, a_turned ? args.lda : 1);
  const std::vector<double> b =
      rows_of(args.b, args.b_type, args.n, k, b_turned ? args.ldb : 1, b_turned ? 1 : args.ldb);
  for (std::int64_t i = 0; i < args.m; ++i) {
    for (std::int64_t j = 0; j < args.n; ++j) {
      double sum = std::inner_product(a.begin() + i * k, a.begin() + (i + 1) * k, b.begin() + j * k, 0.0);
      if (args.bias != nullptr) sum += element(args.bias, args.bias_type, j);
      const std::int64_t at = i * args.ldc + j;
      if (adds) sum += element(args.c, args.c_type, at);
      store(args.c, args.c_type, at, sum);
    }
  }
}

}  // namespace

struct Cublas::RocblasState {};
Cublas::Cublas() = default;
Cublas::~Cublas() = default;
void Cublas::set_tuning(const GemmTuning&) {}
void Cublas::gemm(const GemmArgs& args, cudaStream_t stream) {
  emulation::submit(stream, [args] { multiply(args); });
}
void Cublas::scaled_gemm(const ScaledGemmArgs&, cudaStream_t) { throw Defect("the emulated GPU multiplies no e4m3"); }

}  // namespace hone
