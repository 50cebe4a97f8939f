#include "backend/cuda/cublas.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace hone {
namespace {

void check_cublas(cublasStatus_t status, const std::string& call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error("cublasLt", text_of(call, " failed with status ", static_cast<int>(status)));
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::bf16:
      return CUDA_R_16BF;
    case DType::f64:
      return CUDA_R_64F;
    default:
      throw Defect(text_of("no matrix product of ", name_of(dtype)));
  }
}

constexpr std::int64_t kFewRows = 256;

// The loader's own search first, then where CUDA and the PyPI wheels put it.
void* open_library() {
  std::vector<std::string> names{"libcublasLt.so.13"};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* home = std::getenv(variable)) names.push_back(std::string(home) + "/lib64/libcublasLt.so.13");
  }
  names.emplace_back("/usr/local/cuda/lib64/libcublasLt.so.13");
  for (const std::string& name : names) {
    if (void* library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  throw Error("cublasLt", "libcublasLt.so.13 was not found",
              "set LD_LIBRARY_PATH to the folder of CUDA 13's libraries");
}

}  // namespace

// The functions of the library that are used.
struct Cublas::Library {
  void* handle = open_library();
  template <class Function>
  Function* function(const char* name) {
    void* symbol = ::dlsym(handle, name);
    if (symbol == nullptr) throw Error("cublasLt", text_of("the library has no ", name));
    return reinterpret_cast<Function*>(symbol);
  }
#define HONE_CUBLAS(name) decltype(::name)* name = function<decltype(::name)>(#name)
  HONE_CUBLAS(cublasLtCreate);
  HONE_CUBLAS(cublasLtDestroy);
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
#undef HONE_CUBLAS
};

// cuBLASLt is column-major: the row-major C = A B is there C^T = B^T A^T, so its A is our B.
struct Cublas::Plan {
  Library& library;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algorithm{};

  Plan(Library& library_, cublasLtHandle_t handle, const GemmKey& key) : library(library_) {
    const bool wide = key.c_type == DType::f64;
    check_cublas(library.cublasLtMatmulDescCreate(&operation, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                                  wide ? CUDA_R_64F : CUDA_R_32F),
                 "MatmulDescCreate");
    const cublasOperation_t first = key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    set(CUBLASLT_MATMUL_DESC_TRANSA, first);
    set(CUBLASLT_MATMUL_DESC_TRANSB, second);
    if (key.bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(data_type(key.b_type)));
    }
    // As stored: rows of the row-major matrix are columns here.
    layout(a, key.b_type, key.transpose_b ? key.k : key.n, key.transpose_b ? key.n : key.k, key.ldb);
    layout(b, key.a_type, key.transpose_a ? key.m : key.k, key.transpose_a ? key.k : key.m, key.lda);
    layout(c, key.c_type, key.n, key.m, key.ldc);
    choose(handle, key);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  ~Plan() {
    library.cublasLtMatrixLayoutDestroy(a);
    library.cublasLtMatrixLayoutDestroy(b);
    library.cublasLtMatrixLayoutDestroy(c);
    library.cublasLtMatmulDescDestroy(operation);
  }

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value) const {
    check_cublas(library.cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)),
                 "MatmulDescSetAttribute");
  }

 private:
  void layout(cublasLtMatrixLayout_t& result, DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t ld) {
    check_cublas(library.cublasLtMatrixLayoutCreate(&result, data_type(dtype), static_cast<std::uint64_t>(rows),
                                                    static_cast<std::uint64_t>(columns), ld),
                 "MatrixLayoutCreate");
  }

  void choose(cublasLtHandle_t handle, const GemmKey& key) {
    cublasLtMatmulPreference_t preference = nullptr;
    check_cublas(library.cublasLtMatmulPreferenceCreate(&preference), "MatmulPreferenceCreate");
    const std::size_t workspace = kCublasWorkspace;
    library.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                                 sizeof(workspace));
    // A sum over k that is split depends on the number of rows, but for a weight gradient, which sums over the rows.
    const std::uint32_t reductions =
        key.transpose_a ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
    library.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                                 sizeof(reductions));
    const std::uint32_t alignment = 16;
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      library.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &alignment, sizeof(alignment));
    }
    // Chosen as if there were more rows, so that few rows are summed by the same kind of kernel as many.
    GemmKey many = key;
    if (!key.transpose_a)
      many.m = key.c_type == DType::bf16 || key.a_type == DType::bf16 ? std::max(key.m, kFewRows) : kFewRows;
    cublasLtMatrixLayout_t many_b = nullptr;
    cublasLtMatrixLayout_t many_c = nullptr;
    layout(many_b, many.a_type, many.transpose_a ? many.m : many.k, many.transpose_a ? many.k : many.m, many.lda);
    layout(many_c, many.c_type, many.n, many.m, many.ldc);
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status = library.cublasLtMatmulAlgoGetHeuristic(handle, operation, a, many_b, many_c, many_c,
                                                                         preference, 1, &result, &found);
    library.cublasLtMatrixLayoutDestroy(many_b);
    library.cublasLtMatrixLayoutDestroy(many_c);
    library.cublasLtMatmulPreferenceDestroy(preference);
    if (status != CUBLAS_STATUS_SUCCESS || found == 0) {
      throw Error("cublasLt", text_of("no algorithm for a product of ", key.m, " x ", key.n, " x ", key.k, " in ",
                                      name_of(key.a_type), " (status ", static_cast<int>(status), ")"));
    }
    algorithm = result.algo;
  }
};

Cublas::Cublas() : library_(std::make_unique<Library>()) { check_cublas(library_->cublasLtCreate(&handle_), "Create"); }

Cublas::~Cublas() {
  plans_.clear();
  library_->cublasLtDestroy(handle_);
}

const Cublas::Plan& Cublas::plan(const GemmKey& key) {
  std::unique_ptr<Plan>& plan = plans_[key];
  if (!plan) plan = std::make_unique<Plan>(*library_, handle_, key);
  return *plan;
}

void Cublas::gemm(const GemmArgs& args, cudaStream_t stream) {
  if (args.m == 0 || args.n == 0) return;
  HONE_ASSERT(args.k > 0, "a product over nothing");
  HONE_ASSERT(args.workspace.size() >= kCublasWorkspace, "a workspace of ", args.workspace.size(), " bytes");
  HONE_ASSERT(args.bias == nullptr || args.bias_type == args.b_type, "a bias of ", name_of(args.bias_type));
  const GemmKey key{.m = args.m,
                    .n = args.n,
                    .k = args.k,
                    .lda = args.lda,
                    .ldb = args.ldb,
                    .ldc = args.ldc,
                    .transpose_a = args.transpose_a == Transpose::yes,
                    .transpose_b = args.transpose_b == Transpose::yes,
                    .accumulate = args.accumulate,
                    .bias = args.bias != nullptr,
                    .a_type = args.a_type,
                    .b_type = args.b_type,
                    .c_type = args.c_type};
  const Plan& plan = this->plan(key);
  if (key.bias) plan.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias);
  const float one = 1;
  const float beta = args.accumulate ? 1 : 0;
  const double one_wide = 1;
  const double beta_wide = beta;
  const bool wide = args.c_type == DType::f64;
  check_cublas(library_->cublasLtMatmul(handle_, plan.operation, wide ? static_cast<const void*>(&one_wide) : &one,
                                        args.b, plan.a, args.a, plan.b,
                                        wide ? static_cast<const void*>(&beta_wide) : &beta, args.c, plan.c, args.c,
                                        plan.c, &plan.algorithm, args.workspace.data(), kCublasWorkspace, stream),
               "Matmul");
}

}  // namespace hone
