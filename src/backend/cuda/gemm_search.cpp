// Steps of a search:
//
//   1. screening: time the default algorithm and every proposal with one to three runs
//   2. comparison: the fastest ones, up to kFinalists with the default, must give the bits of the default
//   3. final: time the finalists in turns, compare their medians, and keep the default unless another is 0.5% faster
#include "backend/cuda/gemm_search.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "backend/cuda/check.h"
#include "backend/cuda/compare.h"
#include "core/random.h"

namespace hone {
namespace {

using Algorithm = cublasLtMatmulAlgo_t;

constexpr std::size_t kPattern = std::size_t{1} << 20;     // random values, repeated over the operands
constexpr std::size_t kRotation = std::size_t{256} << 20;  // bytes of all operand copies, well above the L2 cache
constexpr std::size_t kMostCopies = 64;
constexpr std::int64_t kCompared = std::int64_t{1} << 20;  // least number of elements compared with first()
constexpr std::size_t kFinalists = 6;
constexpr double kScreenFactor = 1.3;     // times the fastest: slower algorithms are measured only once
constexpr double kFinalistFactor = 1.06;  // times the fastest: slower algorithms are not finalists
constexpr double kWorthwhile = 0.995;     // times first(): an algorithm must be faster than that to replace it
// Turns of a finalist. A sustained turn runs the algorithm alone for `seconds` and then times it for as long again: the
// GPU lowers its clock within some tens of milliseconds to stay within its power limit, so an algorithm that takes less
// energy ends up faster. Short GEMMs do not reach that limit in practice, because the GPU is idle between them; they
// are timed in short turns.
struct Turns {
  double seconds;
  int rounds;
};
constexpr Turns kSustained{.seconds = 50e-3, .rounds = 2};
constexpr Turns kShort{.seconds = 1.5e-3, .rounds = 15};
constexpr double kLong = 100e-6;  // seconds; GEMMs from this time on are timed in sustained turns

// Owner of GPU memory; null if there was not enough.
class Memory {
 public:
  explicit Memory(std::size_t bytes) {
    if (cudaMalloc(&data_, bytes) == cudaSuccess) return;
    cudaGetLastError();
    data_ = nullptr;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { cudaFree(data_); }
  [[nodiscard]] std::byte* at(std::size_t offset) const { return static_cast<std::byte*>(data_) + offset; }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void* data_ = nullptr;
};

class Event {
 public:
  Event() { check_cuda(cudaEventCreate(&event_), "cudaEventCreate"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { cudaEventDestroy(event_); }
  void record(cudaStream_t stream) const { check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  [[nodiscard]] double seconds_since(const Event& start) const {
    float milliseconds = 0;
    check_cuda(cudaEventSynchronize(event_), "cudaEventSynchronize");
    check_cuda(cudaEventElapsedTime(&milliseconds, start.event_, event_), "cudaEventElapsedTime");
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

constexpr std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

std::size_t matrix_bytes(std::int64_t rows, std::int64_t ld, DType dtype) {
  return aligned(static_cast<std::size_t>(rows * ld) * size_of(dtype));
}

struct Candidate {
  Algorithm algorithm{};
  double seconds = std::numeric_limits<double>::infinity();
};

class Search {
 public:
  Search(const CublasGemm& product, cudaStream_t stream)
      : product_(product),
        stream_(stream),
        a_bytes_(matrix_bytes(product.key().transpose_a ? product.key().k : product.key().m, product.key().lda,
                              product.key().a_type)),
        b_bytes_(matrix_bytes(product.key().transpose_b ? product.key().n : product.key().k, product.key().ldb,
                              product.key().b_type)),
        c_bytes_(matrix_bytes(product.key().m, product.key().ldc, product.key().c_type)),
        bias_bytes_(product.key().bias ? matrix_bytes(1, product.key().n, product.key().b_type) : 0),
        copy_bytes_(a_bytes_ + b_bytes_ + c_bytes_ + bias_bytes_),
        copies_(std::clamp(kRotation / copy_bytes_ + 1, std::size_t{1}, kMostCopies)),
        // Layout: operand copies | result of first() | count of differences (256 bytes) | workspace.
        memory_(copies_ * copy_bytes_ + c_bytes_ + 256 + kCublasWorkspace) {}

  std::optional<GemmSearch> run() {
    if (!memory_) return std::nullopt;
    fill();
    first_.algorithm = product_.first();
    first_.seconds = screen(first_.algorithm);
    fastest_ = first_.seconds;
    if (std::isinf(first_.seconds)) return std::nullopt;
    candidates_ = {first_};
    for (const Algorithm& each : product_.proposals()) consider(each);
    return decide();
  }

 private:
  void fill() {
    std::vector<BFloat16> pattern(kPattern);
    const RandomStream random(1, "matrix products");
    for (std::size_t i = 0; i < kPattern; ++i) pattern[i] = BFloat16(random.normal(i));
    const std::size_t bytes = kPattern * sizeof(BFloat16);
    const std::size_t all = copies_ * copy_bytes_;
    check_cuda(cudaMemcpyAsync(memory_.at(0), pattern.data(), std::min(bytes, all), cudaMemcpyHostToDevice, stream_),
               "a copy to the GPU");
    for (std::size_t done = bytes; done < all; done *= 2) {
      check_cuda(cudaMemcpyAsync(memory_.at(done), memory_.at(0), std::min(done, all - done), cudaMemcpyDeviceToDevice,
                                 stream_),
                 "a copy on the GPU");
    }
    check_cuda(cudaStreamSynchronize(stream_), "work on the GPU");
  }

  [[nodiscard]] CublasGemm::Operands operands(std::size_t copy) const {
    const std::size_t at = copy % copies_ * copy_bytes_;
    return {.a = memory_.at(at),
            .b = memory_.at(at + a_bytes_),
            .c = memory_.at(at + a_bytes_ + b_bytes_),
            .bias = product_.key().bias ? memory_.at(at + a_bytes_ + b_bytes_ + c_bytes_) : nullptr,
            .workspace = memory_.at(copies_ * copy_bytes_ + c_bytes_ + 256)};
  }

  // Mean time of a run in seconds; infinity if the library rejects the algorithm.
  double time(const Algorithm& algorithm, std::size_t runs) {
    start_.record(stream_);
    for (std::size_t i = 0; i < runs; ++i) {
      if (product_.run(algorithm, operands(next_++), stream_) != CUBLAS_STATUS_SUCCESS) {
        cudaGetLastError();
        return std::numeric_limits<double>::infinity();
      }
    }
    end_.record(stream_);
    return end_.seconds_since(start_) / static_cast<double>(runs);
  }

  // Computes c of one round into `to`; returns false if the library rejects the algorithm. `to` is first filled with
  // the first copy's a and b, which no run overwrites, so that accumulation starts from the same values for all
  // algorithms. Each round shifts `a`, so that a GEMM of few rows sees different values in each round.
  bool result(const Algorithm& algorithm, std::size_t round, std::byte* to) {
    CublasGemm::Operands given = operands(round);
    given.a = static_cast<const std::byte*>(given.a) + round * 256 % (b_bytes_ + 256);
    given.c = to;
    const std::size_t piece = a_bytes_ + b_bytes_;
    for (std::size_t done = 0; done < c_bytes_; done += piece) {
      check_cuda(cudaMemcpyAsync(to + done, memory_.at(0), std::min(piece, c_bytes_ - done), cudaMemcpyDeviceToDevice,
                                 stream_),
                 "a copy on the GPU");
    }
    return product_.run(algorithm, given, stream_) == CUBLAS_STATUS_SUCCESS;
  }

  // Returns true if the results of the algorithm are bitwise equal to those of first().
  bool agrees(const Algorithm& algorithm) {
    auto* count = reinterpret_cast<unsigned long long*>(memory_.at(copies_ * copy_bytes_ + c_bytes_));
    std::byte* expected = memory_.at(copies_ * copy_bytes_);
    check_cuda(cudaMemsetAsync(count, 0, sizeof(*count), stream_), "cudaMemset");
    const std::int64_t elements = product_.key().m * product_.key().n;
    const auto rounds = static_cast<std::size_t>((kCompared + elements - 1) / elements);
    for (std::size_t round = 0; round < rounds; ++round) {
      std::byte* seen = static_cast<std::byte*>(operands(round).c);
      if (!result(first_.algorithm, round, expected) || !result(algorithm, round, seen)) return false;
      count_differences(seen, expected, c_bytes_, count, stream_);
    }
    unsigned long long differing = 0;
    check_cuda(cudaMemcpyAsync(&differing, count, sizeof(differing), cudaMemcpyDeviceToHost, stream_),
               "a copy from the GPU");
    check_cuda(cudaStreamSynchronize(stream_), "a GEMM that is being timed");
    return differing == 0;
  }

  // Estimates the time with few runs. The first run is not timed, because it loads the kernel.
  double screen(const Algorithm& algorithm) {
    if (std::isinf(time(algorithm, 1))) return std::numeric_limits<double>::infinity();
    const double once = time(algorithm, 1);
    return once > kScreenFactor * fastest_ ? once : std::min(once, time(algorithm, 2));
  }

  void consider(const Algorithm& algorithm) {
    const auto same = [&](const Candidate& each) {
      return std::memcmp(&each.algorithm, &algorithm, sizeof(algorithm)) == 0;
    };
    if (std::ranges::any_of(candidates_, same)) return;
    candidates_.push_back({algorithm, screen(algorithm)});
    fastest_ = std::min(fastest_, candidates_.back().seconds);
  }

  void sort() { std::ranges::stable_sort(candidates_, {}, &Candidate::seconds); }

  std::optional<GemmSearch> decide();

  const CublasGemm& product_;
  cudaStream_t stream_;
  std::size_t a_bytes_, b_bytes_, c_bytes_, bias_bytes_, copy_bytes_, copies_;
  Memory memory_;
  Event start_, end_;
  std::size_t next_ = 0;
  double fastest_ = std::numeric_limits<double>::infinity();
  std::size_t different_ = 0;
  Candidate first_;
  std::vector<Candidate> candidates_;
};

std::optional<GemmSearch> Search::decide() {
  // Select the finalists: the fastest algorithms that give the same bits as the default, and the default itself.
  sort();
  const double limit = kFinalistFactor * candidates_.front().seconds;
  std::vector<Candidate> finalists{first_};
  for (const Candidate& each : candidates_) {
    if (finalists.size() == kFinalists || each.seconds > limit) break;
    if (std::memcmp(&each.algorithm, &first_.algorithm, sizeof(Algorithm)) == 0) continue;
    if (agrees(each.algorithm)) {
      finalists.push_back(each);
    } else {
      ++different_;
    }
  }
  // Time the finalists in turns and take the median of each.
  std::vector<std::vector<double>> times(finalists.size());  // [finalists][rounds], seconds
  const bool sustained = first_.seconds >= kLong;
  const Turns& turns = sustained ? kSustained : kShort;
  for (int round = 0; round < turns.rounds; ++round) {
    for (std::size_t i = 0; i < finalists.size(); ++i) {
      const auto runs = static_cast<std::size_t>(std::clamp(turns.seconds / finalists[i].seconds, 1.0, 1000.0));
      if (sustained) (void)time(finalists[i].algorithm, runs);
      times[i].push_back(time(finalists[i].algorithm, runs));
    }
  }
  for (std::size_t i = 0; i < finalists.size(); ++i) {
    std::ranges::sort(times[i]);
    finalists[i].seconds = times[i][times[i].size() / 2];
  }
  // Keep the default unless another algorithm is faster by more than the noise.
  const Candidate& fastest = *std::ranges::min_element(finalists, {}, &Candidate::seconds);
  const Candidate& chosen = fastest.seconds < kWorthwhile * finalists[0].seconds ? fastest : finalists[0];
  GemmSearch search{.tried = candidates_.size(), .different = different_};
  static_assert(sizeof(chosen.algorithm) == sizeof(search.choice.algorithm));
  std::memcpy(search.choice.algorithm.data(), &chosen.algorithm, sizeof(chosen.algorithm));
  search.choice.description = product_.describe(chosen.algorithm);
  search.choice.microseconds = chosen.seconds * 1e6;
  search.choice.default_microseconds = finalists[0].seconds * 1e6;
  return search;
}

}  // namespace

std::optional<GemmSearch> search_gemm(const CublasGemm& product, cudaStream_t stream) {
  return Search(product, stream).run();
}

}  // namespace hone
