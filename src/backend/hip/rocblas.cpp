#include "backend/hip/rocblas.h"

#include <dlfcn.h>

#include <array>
#include <limits>
#include <string>
#include <string_view>

#include "backend/cuda/clear.h"
#include "backend/cuda/cublas.h"
#include "backend/cuda/gpu_library.h"
#include "backend/hip/bias.h"
#include "core/error.h"

namespace hone {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"librocblas.so.5", "librocblas.so.4", "librocblas.so.0"};
constexpr std::string_view kAdvice = "install rocBLAS, or set LD_LIBRARY_PATH to its folder";

void* open_library() {
  for (const std::string_view name : kNames) {
    try {
      return open_gpu_library(name, "rocblas", kAdvice);
    } catch (const Error&) {  // that of another version of ROCm
    }
  }
  throw Error("rocblas", "librocblas.so was not found", std::string(kAdvice));
}

RocblasType type_of(DType type) {
  switch (type) {
    case DType::kF32:
      return kRocblasF32;
    case DType::kF64:
      return kRocblasF64;
    case DType::kBf16:
      return kRocblasBf16;
    default:
      throw Defect(text_of("no GEMM of ", name_of(type)));
  }
}

int extent(std::int64_t value) {
  HONE_ASSERT(value >= 0 && value <= std::numeric_limits<int>::max(), "a GEMM has an extent of ", value);
  return static_cast<int>(value);
}

RocblasOperation operation(Transpose transpose) {
  return transpose == Transpose::kYes ? kRocblasTranspose : kRocblasNone;
}

}  // namespace

RocblasLibrary::RocblasLibrary() {
  void* const library = open_library();
  const auto bind = [&]<class Function>(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    if (function == nullptr) throw Error("rocblas", text_of("librocblas.so has no ", name), "install a newer rocBLAS");
  };
  bind(create, "rocblas_create_handle");
  bind(set_stream, "rocblas_set_stream");
  bind(set_atomics, "rocblas_set_atomics_mode");
  bind(gemm, "rocblas_gemm_ex");
}

void RocblasLibrary::check(RocblasStatus status, const char* call) {
  if (status != 0) throw Error("rocblas", text_of(call, ": status ", status));
}

struct Cublas::RocblasState {
  RocblasLibrary library;
  RocblasHandle handle = nullptr;

  RocblasState() {
    RocblasLibrary::check(library.create(&handle), "rocblas_create_handle");
    // Atomics would add in the order in which blocks end.
    RocblasLibrary::check(library.set_atomics(handle, kRocblasNoAtomics), "rocblas_set_atomics_mode");
  }
};

Cublas::Cublas() : state_(std::make_unique<RocblasState>()) {}
Cublas::~Cublas() = default;

// rocBLAS has no table of algorithms that hone could search.
void Cublas::set_tuning(const GemmTuning&) {}

// A row-major C = op(A) op(B) is the column-major C^T = op(B)^T op(A)^T. rocBLAS has no bias: it is written to C
// before, and the product is added to it, which rounds once.
void Cublas::gemm(const GemmArgs& args, cudaStream_t stream) {
  if (args.m == 0 || args.n == 0) return;
  if (args.bias != nullptr) {
    HONE_ASSERT(args.bias_type == args.c_type, "rocBLAS: a bias has another dtype than the result");
    write_bias_rows(args, stream);
  }
  if (args.accumulated != nullptr) clear_unless(args.accumulated, rows_of_result(args), stream);
  const bool wide = args.c_type == DType::kF64;
  const double one = 1;
  const float one_f32 = 1;
  const double rest = args.accumulate || args.bias != nullptr ? 1 : 0;
  const auto rest_f32 = static_cast<float>(rest);
  const void* alpha = wide ? static_cast<const void*>(&one) : &one_f32;
  const void* beta = wide ? static_cast<const void*>(&rest) : &rest_f32;
  const RocblasType c_type = type_of(args.c_type);
  RocblasLibrary::check(state_->library.set_stream(state_->handle, stream), "rocblas_set_stream");
  RocblasLibrary::check(
      state_->library.gemm(state_->handle, operation(args.transpose_b), operation(args.transpose_a), extent(args.n),
                           extent(args.m), extent(args.k), alpha, args.b, type_of(args.b_type), extent(args.ldb),
                           args.a, type_of(args.a_type), extent(args.lda), beta, args.c, c_type, extent(args.ldc),
                           args.c, c_type, extent(args.ldc), wide ? kRocblasF64 : kRocblasF32, kRocblasStandard, 0, 0),
      "rocblas_gemm_ex");
}

void Cublas::scaled_gemm(const ScaledGemmArgs&, cudaStream_t) {
  throw Defect("a GEMM of e4m3 was called in a build for HIP");  // gpu_fp8_obstacle() refuses it
}

}  // namespace hone
