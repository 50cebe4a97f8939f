#include "backend/cuda/scaled_gemm.h"

#include <algorithm>
#include <string>

#include "backend/cuda/clear.h"
#include "backend/cuda/cublas.h"
#include "backend/cuda/cublas_one.h"
#include "core/error.h"

namespace hone {
namespace {

cudaDataType_t type_of_c(DType dtype) {
  HONE_ASSERT(dtype == DType::kBf16 || dtype == DType::kF32, "a product of e4m3 in ", name_of(dtype));
  return dtype == DType::kBf16 ? CUDA_R_16BF : CUDA_R_32F;
}

std::string text_of_gemm(const ScaledGemmArgs& args) {
  return text_of(args.m, " x ", args.n, " x ", args.k, " e4m3 to ", name_of(args.c_type));
}

}  // namespace

// cuBLASLt is column-major: C^T[n, m] = B A^T, where its A is our b, stored as [k, n] and transposed, and its B our a.
struct ScaledGemms::Plan {
  Plan(const CublasLibrary& from, const ScaledGemmArgs& args) : library(from) {
    check_cublas(library.cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "MatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, static_cast<std::int32_t>(CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F));
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, static_cast<std::int32_t>(CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F));
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, args.b_scale);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, args.a_scale);
    if (args.bias != nullptr) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(CUDA_R_16BF));
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias);
    }
    create(a, CUDA_R_8F_E4M3, args.k, args.n, args.k);
    create(b, CUDA_R_8F_E4M3, args.k, args.m, args.k);
    create(c, type_of_c(args.c_type), args.n, args.m, args.n);
    choose(args);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    for (cublasLtMatrixLayout_t layout : {a, b, c}) {
      if (layout != nullptr) library.cublasLtMatrixLayoutDestroy(layout);
    }
    if (operation != nullptr) library.cublasLtMatmulDescDestroy(operation);
  }

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) const {
    check_cublas(library.cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)),
                 "MatmulDescSetAttribute");
  }
  void create(cublasLtMatrixLayout_t& layout, cudaDataType_t type, std::int64_t rows, std::int64_t columns,
              std::int64_t ld) const {
    check_cublas(library.cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(rows),
                                                    static_cast<std::uint64_t>(columns), ld),
                 "MatrixLayoutCreate");
  }

  // Takes the library's first proposal that splits no sum.
  void choose(const ScaledGemmArgs& args) {
    cublasLtMatmulPreference_t made = nullptr;
    check_cublas(library.cublasLtMatmulPreferenceCreate(&made), "MatmulPreferenceCreate");
    const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>,
                          decltype(::cublasLtMatmulPreferenceDestroy)*>
        preference(made, library.cublasLtMatmulPreferenceDestroy);
    const std::size_t workspace = kCublasWorkspace;
    const auto scheme = static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE);
    library.cublasLtMatmulPreferenceSetAttribute(made, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                 sizeof(workspace));
    library.cublasLtMatmulPreferenceSetAttribute(made, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme,
                                                 sizeof(scheme));
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status =
        library.cublasLtMatmulAlgoGetHeuristic(library.handle(), operation, a, b, c, c, made, 1, &result, &found);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0 || result.state != CUBLAS_STATUS_SUCCESS) {
      throw Error("fp8",
                  text_of("cuBLASLt (version ", library.cublasLtGetVersion(), ") has no algorithm for ",
                          text_of_gemm(args), ", status ", static_cast<int>(status)),
                  "remove fp8");
    }
    algorithm = result.algo;
  }

  const CublasLibrary& library;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

ScaledGemms::ScaledGemms(const CublasLibrary& library) : library_(library) {}

ScaledGemms::~ScaledGemms() = default;

const ScaledGemms::Plan& ScaledGemms::plan(const ScaledGemmArgs& args) {
  const Key key{args.m, args.n, args.k, args.c_type, args.bias != nullptr};
  std::unique_ptr<Plan>& plan = plans_[key];
  if (!plan) plan = std::make_unique<Plan>(library_, args);
  return *plan;
}

void ScaledGemms::run(const ScaledGemmArgs& args, cudaStream_t stream) {
  if (args.m == 0 || args.n == 0) return;
  HONE_ASSERT(args.m % 8 == 0 && args.n % 16 == 0 && args.k % 16 == 0 && args.k > 0, "a GEMM ", text_of_gemm(args));
  HONE_ASSERT(args.workspace.size() >= kCublasWorkspace && (args.bias == nullptr || !args.accumulate),
              "a workspace of ", args.workspace.size(), " bytes");
  const Plan& plan = this->plan(args);
  plan.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, args.b_scale);
  plan.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, args.a_scale);
  if (args.bias != nullptr) plan.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias);
  const auto multiply = [&](cublasLtPointerMode_t mode, const float* alpha, const float* beta) {
    plan.set(CUBLASLT_MATMUL_DESC_POINTER_MODE, mode);
    return library_.cublasLtMatmul(library_.handle(), plan.operation, alpha, args.b, plan.a, args.a, plan.b, beta,
                                   args.c, plan.c, args.c, plan.c, &plan.algorithm, args.workspace.data(),
                                   kCublasWorkspace, stream);
  };
  // As Cublas::gemm() does.
  const float* factor = args.accumulated;
  if (factor == nullptr && args.accumulate && args.c_type == DType::kBf16) factor = gpu_one();
  cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
  if (factor != nullptr) status = multiply(CUBLASLT_POINTER_MODE_DEVICE, gpu_one(), factor);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
    if (args.accumulated != nullptr) {
      const std::size_t row_bytes = static_cast<std::size_t>(args.n) * size_of(args.c_type);
      clear_unless(args.accumulated, {args.c, static_cast<std::size_t>(args.m), row_bytes, row_bytes}, stream);
    }
    const float one = 1;
    const float beta = args.accumulate ? 1 : 0;
    status = multiply(CUBLASLT_POINTER_MODE_HOST, &one, &beta);
  }
  check_cublas(status, text_of("Matmul of ", text_of_gemm(args)));
}

}  // namespace hone
