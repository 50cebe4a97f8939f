#include "backend/cuda/cublas_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "backend/cuda/cublas_one.h"
#include "backend/cuda/gpu_library.h"

namespace hone {
namespace {

constexpr std::int64_t kManyRows = 256;  // least number of rows for which first() queries the library
constexpr int kProposals = 96;           // most proposals per query
constexpr std::uint32_t kAlignment16 = 16;

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kBf16:
      return CUDA_R_16BF;
    case DType::kF64:
      return CUDA_R_64F;
    default:
      throw Defect(text_of("no GEMM for the dtype ", name_of(dtype)));
  }
}

bool equal(const cublasLtMatmulAlgo_t& a, const cublasLtMatmulAlgo_t& b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

// Owner of a cublasLtMatrixLayout_t, which describes a matrix in column-major order.
class Layout {
 public:
  Layout(const CublasLibrary& library, DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t ld)
      : library_(library) {
    check_cublas(library.cublasLtMatrixLayoutCreate(&layout_, data_type(dtype), static_cast<std::uint64_t>(rows),
                                                    static_cast<std::uint64_t>(columns), ld),
                 "MatrixLayoutCreate");
  }
  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;
  ~Layout() {
    if (layout_ != nullptr) library_.cublasLtMatrixLayoutDestroy(layout_);
  }
  [[nodiscard]] cublasLtMatrixLayout_t get() const { return layout_; }
  [[nodiscard]] cublasLtMatrixLayout_t release() { return std::exchange(layout_, nullptr); }

 private:
  const CublasLibrary& library_;
  cublasLtMatrixLayout_t layout_ = nullptr;
};

// Layouts of the operands as cuBLASLt names them. It is column-major: a row-major C = A B is C^T = B^T A^T there, so
// its A is our B, and rows of a stored row-major matrix are its columns.
Layout layout_a(const CublasLibrary& library, const GemmKey& key) {
  return {library, key.b_type, key.transpose_b ? key.k : key.n, key.transpose_b ? key.n : key.k, key.ldb};
}
Layout layout_b(const CublasLibrary& library, const GemmKey& key) {
  return {library, key.a_type, key.transpose_a ? key.m : key.k, key.transpose_a ? key.k : key.m, key.lda};
}
Layout layout_c(const CublasLibrary& library, const GemmKey& key) {
  return {library, key.c_type, key.n, key.m, key.ldc};
}

}  // namespace

void check_cublas(cublasStatus_t status, const std::string& call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error("cublasLt", text_of(call, " failed with status ", static_cast<int>(status)));
}

template <class Function>
Function* CublasLibrary::function(const char* name) const {
  void* symbol = ::dlsym(library_, name);
  if (symbol == nullptr) throw Error("cublasLt", text_of("the library has no ", name));
  return reinterpret_cast<Function*>(symbol);
}

CublasLibrary::CublasLibrary()
    : library_(open_gpu_library("libcublasLt.so.13", "cublasLt",
                                "set LD_LIBRARY_PATH to the folder of CUDA 13's libraries")) {
  check_cublas(cublasLtCreate(&handle_), "Create");
}

CublasGemm::CublasGemm(const CublasLibrary& library, const GemmKey& key) : library_(library), key_(key) {
  const bool wide = key.c_type == DType::kF64;
  Layout a = layout_a(library, key);
  Layout b = layout_b(library, key);
  Layout c = layout_c(library, key);
  check_cublas(library.cublasLtMatmulDescCreate(&operation_, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                                wide ? CUDA_R_64F : CUDA_R_32F),
               "MatmulDescCreate");
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value) {
    check_cublas(library.cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof(value)),
                 "MatmulDescSetAttribute");
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (key.bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(data_type(key.b_type)));
  }
  a_ = a.release();
  b_ = b.release();
  c_ = c.release();
}

CublasGemm::~CublasGemm() {
  library_.cublasLtMatrixLayoutDestroy(a_);
  library_.cublasLtMatrixLayoutDestroy(b_);
  library_.cublasLtMatrixLayoutDestroy(c_);
  library_.cublasLtMatmulDescDestroy(operation_);
}

std::vector<cublasLtMatmulAlgo_t> CublasGemm::heuristic(std::int64_t rows, int most) const {
  cublasLtMatmulPreference_t made = nullptr;
  check_cublas(library_.cublasLtMatmulPreferenceCreate(&made), "MatmulPreferenceCreate");
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, decltype(::cublasLtMatmulPreferenceDestroy)*>
      preference(made, library_.cublasLtMatmulPreferenceDestroy);
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    library_.cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kCublasWorkspace);
  // With split-K the order of a sum would depend on the number of rows. Only the weight gradient, which sums over the
  // rows anyway, may use it.
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(key_.transpose_a ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                                  : CUBLASLT_REDUCTION_SCHEME_NONE));
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    set(attribute, kAlignment16);
  }
  // Query with layouts of `rows` rows instead of key_.m.
  GemmKey key = key_;
  key.m = rows;
  if (key.transpose_a) key.lda = std::max(key.lda, rows);
  const Layout b = layout_b(library_, key);
  const Layout c = layout_c(library_, key);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int found = 0;
  const cublasStatus_t status = library_.cublasLtMatmulAlgoGetHeuristic(
      library_.handle(), operation_, a_, b.get(), c.get(), c.get(), preference.get(), most, results.data(), &found);
  if (status != CUBLAS_STATUS_SUCCESS) return {};
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < found; ++i) {
    const cublasLtMatmulHeuristicResult_t& result = results[static_cast<std::size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  return algorithms;
}

cublasLtMatmulAlgo_t CublasGemm::first() const {
  std::int64_t rows = key_.m;
  if (!key_.transpose_a) {
    const bool narrow = key_.c_type == DType::kBf16 || key_.a_type == DType::kBf16;
    rows = narrow ? std::max(key_.m, kManyRows) : kManyRows;
  }
  const std::vector<cublasLtMatmulAlgo_t> algorithms = heuristic(rows, 1);
  if (algorithms.empty()) throw Error("cublasLt", text_of("no algorithm for the GEMM ", to_text(key_)));
  return algorithms[0];
}

std::vector<cublasLtMatmulAlgo_t> CublasGemm::proposals() const {
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (const std::int64_t rows : {key_.m, 2 * key_.m, 4 * key_.m, std::max(key_.m / 2, std::int64_t{1})}) {
    for (const cublasLtMatmulAlgo_t& each : heuristic(rows, kProposals)) {
      const bool known =
          std::ranges::any_of(algorithms, [&](const cublasLtMatmulAlgo_t& other) { return equal(each, other); });
      if (!known && allows(each)) algorithms.push_back(each);
    }
  }
  return algorithms;
}

bool CublasGemm::allows(const cublasLtMatmulAlgo_t& algorithm) const {
  std::int32_t splits = 1;
  std::uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
  std::size_t written = 0;
  if (library_.cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &splits,
                                                    sizeof(splits), &written) != CUBLAS_STATUS_SUCCESS ||
      library_.cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme,
                                                    sizeof(scheme), &written) != CUBLAS_STATUS_SUCCESS) {
    return false;
  }
  const bool split = splits > 1 || scheme != CUBLASLT_REDUCTION_SCHEME_NONE;
  if (split && !(key_.transpose_a && scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)) return false;
  cublasLtMatmulHeuristicResult_t result{};
  return library_.cublasLtMatmulAlgoCheck(library_.handle(), operation_, a_, b_, c_, c_, &algorithm, &result) ==
             CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= kCublasWorkspace;
}

std::string CublasGemm::describe(const cublasLtMatmulAlgo_t& algorithm) const {
  std::string text;
  const auto add = [&](std::string_view name, cublasLtMatmulAlgoConfigAttributes_t attribute, auto value) {
    std::size_t written = 0;
    if (library_.cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof(value), &written) !=
        CUBLAS_STATUS_SUCCESS) {
      return;
    }
    text += text_of(text.empty() ? "" : " ", name, " ", value);
  };
  add("id", CUBLASLT_ALGO_CONFIG_ID, std::int32_t{});
  add("tile", CUBLASLT_ALGO_CONFIG_TILE_ID, std::uint32_t{});
  add("stages", CUBLASLT_ALGO_CONFIG_STAGES_ID, std::uint32_t{});
  add("cluster", CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, std::uint16_t{});
  add("inner", CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, std::uint16_t{});
  add("swizzle", CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, std::uint32_t{});
  add("custom", CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, std::uint32_t{});
  add("splits", CUBLASLT_ALGO_CONFIG_SPLITK_NUM, std::int32_t{});
  return text;
}

cublasStatus_t CublasGemm::run(const cublasLtMatmulAlgo_t& algorithm, const Operands& operands,
                               cudaStream_t stream) const {
  if (key_.bias) {
    const cublasStatus_t status = library_.cublasLtMatmulDescSetAttribute(
        operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<const void*>(&operands.bias), sizeof(operands.bias));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
  }
  const cublasLtPointerMode_t mode =
      operands.factor_of_sum != nullptr ? CUBLASLT_POINTER_MODE_DEVICE : CUBLASLT_POINTER_MODE_HOST;
  const cublasStatus_t status = library_.cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_POINTER_MODE,
                                                                        static_cast<const void*>(&mode), sizeof(mode));
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  if (operands.factor_of_sum != nullptr) {
    return library_.cublasLtMatmul(library_.handle(), operation_, gpu_one(), operands.b, a_, operands.a, b_,
                                   operands.factor_of_sum, operands.c, c_, operands.c, c_, &algorithm,
                                   operands.workspace, kCublasWorkspace, stream);
  }
  const float one = 1;
  const float beta = key_.accumulate ? 1 : 0;
  const double one_wide = 1;
  const double beta_wide = beta;
  const bool wide = key_.c_type == DType::kF64;
  return library_.cublasLtMatmul(library_.handle(), operation_, wide ? static_cast<const void*>(&one_wide) : &one,
                                 operands.b, a_, operands.a, b_, wide ? static_cast<const void*>(&beta_wide) : &beta,
                                 operands.c, c_, operands.c, c_, &algorithm, operands.workspace, kCublasWorkspace,
                                 stream);
}

}  // namespace hone
