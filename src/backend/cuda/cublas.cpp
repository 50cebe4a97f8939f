#include "backend/cuda/cublas.h"

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "backend/cuda/check.h"
#include "backend/cuda/clear.h"
#include "backend/cuda/cublas_library.h"
#include "backend/cuda/cublas_one.h"
#include "backend/cuda/gemm_search.h"
#include "backend/cuda/scaled_gemm.h"
#include "core/error.h"
#include "core/files.h"
#include "core/log.h"

namespace hone {
namespace {

// Returns true if a GEMM is worth a search. f32 and f64 serve tests and parity only, and small GEMMs gain too little.
bool worth_tuning(const GemmKey& key) {
  constexpr double kLeastFlops = 1e9;
  return key.a_type == DType::kBf16 && key.b_type == DType::kBf16 && flops_of(key) >= kLeastFlops;
}

std::string decimal(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

// A GEMM split into two: along m or n they write neighbouring parts of c, along k the second adds to the first.
struct SplitGemm {
  GemmArgs most, rest;
};

const void* shifted(const void* data, DType type, std::int64_t elements) {
  return static_cast<const std::byte*>(data) + elements * static_cast<std::int64_t>(size_of(type));
}

bool is_whole(std::int64_t elements) { return elements % kCublasAlignment == 0; }

// Splits a GEMM as described at kCublasAlignment; nullopt if one call is best.
std::optional<SplitGemm> split_gemm(const GemmArgs& args) {
  if (args.a_type != DType::kBf16 || args.b_type != DType::kBf16) return std::nullopt;
  if (!is_whole(args.lda) || !is_whole(args.ldb) || !is_whole(args.ldc)) return std::nullopt;
  const bool flips_a = args.transpose_a == Transpose::kYes, flips_b = args.transpose_b == Transpose::kYes;
  SplitGemm halves{args, args};
  GemmArgs& rest = halves.rest;
  const auto whole = [](std::int64_t extent) { return extent / kCublasAlignment * kCublasAlignment; };
  if (!is_whole(args.n) && whole(args.n) > 0) {
    const std::int64_t n = halves.most.n = whole(args.n);
    rest.n -= n;
    rest.b = shifted(args.b, args.b_type, flips_b ? n * args.ldb : n);
    rest.c = const_cast<void*>(shifted(args.c, args.c_type, n));
    if (args.bias != nullptr) rest.bias = shifted(args.bias, args.bias_type, n);
    return halves;
  }
  if (flips_a && !is_whole(args.m) && whole(args.m) > 0) {
    const std::int64_t m = halves.most.m = whole(args.m);
    rest.m -= m;
    rest.a = shifted(args.a, args.a_type, m);
    rest.c = const_cast<void*>(shifted(args.c, args.c_type, m * args.ldc));
    return halves;
  }
  const bool can_follow = args.c_type != DType::kBf16 && args.bias == nullptr;
  if ((!flips_a || flips_b) && can_follow && !is_whole(args.k) && whole(args.k) > 0) {
    const std::int64_t k = halves.most.k = whole(args.k);
    rest.k -= k;
    rest.a = shifted(args.a, args.a_type, flips_a ? k * args.lda : k);
    rest.b = shifted(args.b, args.b_type, flips_b ? k : k * args.ldb);
    rest.accumulate = true;
    rest.accumulated = nullptr;
    return halves;
  }
  return std::nullopt;
}

std::string device_name() {
  int device = 0;
  cudaDeviceProp properties{};
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return properties.name;
}

void read_newer(GemmTable& table, const std::filesystem::path& path) {
  if (!is_file(path)) return;
  try {
    table.read(path);
  } catch (const Error&) {
    return;  // not a valid table; the caller replaces it
  }
}

}  // namespace

struct Cublas::State {
  struct Plan {
    Plan(const CublasLibrary& library, const GemmKey& key) : product(library, key) {}
    CublasGemm product;
    cublasLtMatmulAlgo_t algorithm{};
  };

  CublasLibrary library;
  ScaledGemms scaled{library};
  GemmTuning tuning;
  std::optional<GemmTable> table;  // read at the first GEMM
  std::filesystem::path path;
  std::map<GemmKey, std::unique_ptr<Plan>> plans;

  GemmTable read_table();
  GemmTable& known() { return table ? *table : table.emplace(read_table()); }
  const Plan& plan(const GemmKey& key, cudaStream_t stream);
  void search(Plan& plan, cudaStream_t stream);
  void add(const GemmKey& key, const GemmChoice& choice);
};

Cublas::Cublas() : state_(std::make_unique<State>()) {}

Cublas::~Cublas() = default;

void Cublas::set_tuning(const GemmTuning& tuning) {
  state_->plans.clear();
  state_->tuning = tuning;
  state_->table = state_->read_table();
}

GemmTable Cublas::State::read_table() {
  GemmTable stored(device_name(), static_cast<std::int64_t>(library.cublasLtGetVersion()));
  if (tuning.mode == GemmTuning::Mode::kOff) return stored;
  path = tuning.table.empty() ? stored.default_path() : std::filesystem::path(tuning.table);
  if (!is_file(path)) {
    if (tuning.mode == GemmTuning::Mode::kKnown && !tuning.table.empty()) {
      throw Error("gemm_table", text_of("there is no file ", path.string()), "--tune_gemm creates it");
    }
    return stored;
  }
  try {
    stored.read(path);
  } catch (const Error& error) {
    if (!tuning.table.empty()) throw;
    log_warning(text_of(error.what(), "; GEMMs run untuned"));
    return stored;
  }
  const std::string others = stored.rows_of_other_devices() > 0 ? text_of(", ", stored.rows_of_other_devices(),
                                                                          " rows are of other devices or versions")
                                                                : "";
  log_once(text_of(stored.size(), " tuned GEMMs read from ", path.string(), others));
  return stored;
}

const Cublas::State::Plan& Cublas::State::plan(const GemmKey& key, cudaStream_t stream) {
  std::unique_ptr<Plan>& plan = plans[key];
  if (plan) return *plan;
  const GemmTable& tuned = known();
  plan = std::make_unique<Plan>(library, key);
  if (const GemmChoice* choice = tuned.find(key)) {
    std::memcpy(&plan->algorithm, choice->algorithm.data(), sizeof(plan->algorithm));
    if (plan->product.allows(plan->algorithm)) return *plan;
    log_warning(text_of(path.string(), ": the algorithm for ", to_text(key), " cannot run here and is ignored"));
  }
  plan->algorithm = plan->product.first();
  if (tuning.mode == GemmTuning::Mode::kSearch && worth_tuning(key)) search(*plan, stream);
  return *plan;
}

void Cublas::State::search(Plan& plan, cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &capture) != cudaSuccess || capture != cudaStreamCaptureStatusNone) return;
  const GemmKey& key = plan.product.key();
  const std::optional<GemmSearch> found = search_gemm(plan.product, stream);
  if (!found) {
    log_warning(text_of("tune_gemm: not enough memory to time ", to_text(key),
                        "; a model with fewer layers has the same GEMMs"));
    return;
  }
  const GemmChoice& choice = found->choice;
  std::memcpy(&plan.algorithm, choice.algorithm.data(), sizeof(plan.algorithm));
  add(key, choice);
  log_info(text_of(
      "tune_gemm: ", to_text(key), ": ", decimal("%.1f", choice.microseconds), " us, untuned ",
      decimal("%.1f", choice.default_microseconds), " us; ",
      decimal("%.0f", flops_of(key) / choice.microseconds * 1e-6), " TFLOP/s, ", found->tried, " algorithms tried",
      found->different > 0 ? text_of(", ", found->different, " rejected because their results differ") : ""));
}

// Adds the choice to the current content of the file, to which another process may have added rows.
void Cublas::State::add(const GemmKey& key, const GemmChoice& choice) {
  GemmTable& tuned = known();
  read_newer(tuned, path);
  tuned.set(key, choice);
  tuned.write(path);
}

void Cublas::scaled_gemm(const ScaledGemmArgs& args, cudaStream_t stream) { state_->scaled.run(args, stream); }

void Cublas::gemm(const GemmArgs& args, cudaStream_t stream) {
  if (args.m == 0 || args.n == 0) return;
  HONE_ASSERT(args.k > 0, "a GEMM with k = 0");
  HONE_ASSERT(args.workspace.size() >= kCublasWorkspace, "a GEMM workspace of ", args.workspace.size(), " bytes");
  HONE_ASSERT(args.bias == nullptr || args.bias_type == args.b_type, "a bias of ", name_of(args.bias_type));
  if (const std::optional<SplitGemm> halves = split_gemm(args)) {
    gemm(halves->most, stream);
    gemm(halves->rest, stream);
    return;
  }
  const GemmKey key{.m = args.m,
                    .n = args.n,
                    .k = args.k,
                    .lda = args.lda,
                    .ldb = args.ldb,
                    .ldc = args.ldc,
                    .transpose_a = args.transpose_a == Transpose::kYes,
                    .transpose_b = args.transpose_b == Transpose::kYes,
                    .accumulate = args.accumulate,
                    .bias = args.bias != nullptr,
                    .a_type = args.a_type,
                    .b_type = args.b_type,
                    .c_type = args.c_type};
  const State::Plan& plan = state_->plan(key, stream);
  // Sums of bf16 are rounded once only with a factor in GPU memory (docs/lab-notes.md). That of f64 would be f64.
  const bool wide = args.c_type == DType::kF64;
  const float* factor = wide ? nullptr : args.accumulated;
  if (factor == nullptr && args.accumulate && args.c_type == DType::kBf16) factor = gpu_one();
  CublasGemm::Operands operands{.a = args.a,
                                .b = args.b,
                                .c = args.c,
                                .bias = args.bias,
                                .workspace = args.workspace.data(),
                                .factor_of_sum = factor};
  cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;  // of a factor in GPU memory, so that C is cleared before
  if (operands.factor_of_sum != nullptr) status = plan.product.run(plan.algorithm, operands, stream);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
    if (args.accumulated != nullptr) clear_unless(args.accumulated, rows_of_result(args), stream);
    operands.factor_of_sum = nullptr;
    status = plan.product.run(plan.algorithm, operands, stream);
  }
  check_cublas(status, "Matmul");
}

}  // namespace hone
