// Sampling on a GPU. A block has one row. Where a row has many chunks, two kernels before it reduce each chunk in a
// separate block (statistics, then mass), because one SM alone reads a row of logits slowly.
#include "ops/linear_logprobs/parted_softmax.cuh"
#include "ops/registry.h"
#include "ops/sample/random.cuh"
#include "ops/sample/row.cuh"
#include "ops/sample/sample.h"

namespace hone {
namespace {

constexpr std::uint64_t kStreamHash = stream_name_hash("sample");
constexpr std::int64_t kMostChunks = 256;  // of a row whose chunks have a block each
constexpr std::int64_t kMostRows = 65535;  // of such rows: the size of a grid

// Operands of all kernels.
template <class A>
struct Logits {
  const A* logits;                     // [rows, vocab]
  const A* penalized;                  // to draw from instead, or null
  const std::int32_t* penalized_rows;  // [rows]: 0 if a row is drawn from `logits` nevertheless; null as `penalized`
  const A* parameters;
  RowCount rows;
  std::int64_t vocab;
  std::int64_t parts;  // of the vocabulary

  [[nodiscard]] __device__ bool is_penalized(std::int64_t row) const {
    return penalized != nullptr && penalized_rows[row] != 0;
  }
  [[nodiscard]] __device__ const A* drawn_from(std::int64_t row) const {
    return (is_penalized(row) ? penalized : logits) + row * vocab;
  }
  [[nodiscard]] __device__ A parameter(std::int64_t row, SampleParameter which) const {
    return parameters[row * kSampleParameters + static_cast<int>(which)];
  }
  [[nodiscard]] __device__ bool greedy(std::int64_t row) const {
    return !(parameter(row, SampleParameter::kTemperature) > A(0));
  }
  [[nodiscard]] __device__ A temperature(std::int64_t row) const {
    return greedy(row) ? A(1) : parameter(row, SampleParameter::kTemperature);
  }
  [[nodiscard]] __device__ bool keeps_first(std::int64_t row) const {
    const A top_k = parameter(row, SampleParameter::kTopK);
    return top_k >= A(1) && top_k < static_cast<A>(vocab);
  }
  [[nodiscard]] __device__ bool keeps_share(std::int64_t row) const {
    return parameter(row, SampleParameter::kTopP) < A(1);
  }
};

// Results of the kernels for chunks; null if a row's block does all.
template <class A>
struct Chunks {
  ChunkStatistics<A>* statistics = nullptr;   // [rows, count], of the logits that are drawn from
  ChunkStatistics<A>* unpenalized = nullptr;  // [rows, count], of the others
  std::uint64_t* masses = nullptr;            // [rows, count], of rows without top_k and top_p
  int count = 0;

  Chunks() = default;
  Chunks(std::span<std::byte> workspace, std::int64_t rows, std::int64_t chunks) : count(static_cast<int>(chunks)) {
    const std::int64_t all = rows * chunks;
    statistics = reinterpret_cast<ChunkStatistics<A>*>(workspace.data());
    unpenalized = statistics + all;
    masses = reinterpret_cast<std::uint64_t*>(unpenalized + all);
  }
  [[nodiscard]] static std::size_t bytes(std::int64_t rows, std::int64_t chunks) {
    return static_cast<std::size_t>(rows * chunks) * (2 * sizeof(ChunkStatistics<A>) + sizeof(std::uint64_t));
  }
};

[[nodiscard]] bool reduces_chunks(std::int64_t rows, std::int64_t vocab) {
  const std::int64_t chunks = ceil_div(vocab, kVocabChunk);
  return chunks > 1 && chunks <= kMostChunks && rows <= kMostRows;
}

// Block (chunk, row, 0) computes the statistics of a chunk that is drawn from; (chunk, row, 1) those of the
// unpenalized logits.
template <class A>
__global__ void __launch_bounds__(kSampleThreads) sample_statistics_kernel(Logits<A> p, Chunks<A> chunks) {
  __shared__ LogSoftmaxScratch<A> scratch;
  const std::int64_t row = blockIdx.y;
  begin_dependent_kernel();
  if (row >= p.rows.get()) return;
  const bool other = blockIdx.z == 1;
  if (other && !p.is_penalized(row)) return;
  const std::int64_t first = blockIdx.x * kVocabChunk;
  const A* logits = (other ? p.logits + row * p.vocab : p.drawn_from(row)) + first;
  LogitChunk<A> chunk;
  chunk.load(logits, static_cast<int>(min(p.vocab - first, kVocabChunk)),
             reinterpret_cast<std::uintptr_t>(logits) % 16 == 0, -std::numeric_limits<A>::infinity());
  const ChunkStatistics<A> statistics = chunk_statistics(chunk, p.temperature(row), scratch);
  if (threadIdx.x == 0) (other ? chunks.unpenalized : chunks.statistics)[row * chunks.count + blockIdx.x] = statistics;
}

// Block (chunk, row) computes the mass of a chunk.
template <class A>
__global__ void __launch_bounds__(kSampleThreads) sample_mass_kernel(Logits<A> p, Chunks<A> chunks) {
  __shared__ SampleShared<A> shared;
  const std::int64_t row = blockIdx.y;
  begin_dependent_kernel();
  if (row >= p.rows.get() || p.greedy(row) || p.keeps_first(row) || p.keeps_share(row)) return;
  if (threadIdx.x < 32) {
    A max = -std::numeric_limits<A>::infinity();
    for (int i = static_cast<int>(threadIdx.x); i < chunks.count; i += 32) {
      const A of_chunk = chunks.statistics[row * chunks.count + i].max;
      if (of_chunk > max) max = of_chunk;
    }
    max = warp_max(max);
    if (threadIdx.x == 0) shared.softmax.max = max;
  }
  __syncthreads();
  SampleRow<A> drawn(p.drawn_from(row), p.vocab, p.temperature(row), p.parameter(row, SampleParameter::kMinP), shared);
  const std::uint64_t mass = drawn.chunk_mass(static_cast<int>(blockIdx.x));
  if (threadIdx.x == 0) chunks.masses[row * chunks.count + blockIdx.x] = mass;
}

// Computes the statistics of a row, from those of its chunks if they are there.
template <class A>
__device__ void row_statistics(SampleShared<A>& shared, const A* logits, std::int64_t vocab, A temperature,
                               const ChunkStatistics<A>* statistics, int chunks) {
  if (statistics == nullptr) return log_softmax_row(shared.softmax, logits, vocab, temperature, shared.scratch);
  const auto at = static_cast<int>(threadIdx.x);
  if (at < chunks) shared.statistics[at] = statistics[at];
  __syncthreads();
  if (threadIdx.x == 0) {
    shared.softmax.clear();
    for (int i = 0; i < chunks; ++i) {
      shared.softmax.add(shared.statistics[i], static_cast<std::int32_t>(i * kVocabChunk));
    }
  }
  __syncthreads();
}

// Samples a token for each row.
template <class A>
__global__ void __launch_bounds__(kSampleThreads)
    sample_kernel(Logits<A> p, Chunks<A> chunks, const std::int64_t* keys, std::int32_t* tokens, A* logps) {
  __shared__ SampleShared<A> shared;
  const std::int64_t row = blockIdx.x;
  begin_dependent_kernel();
  if (row >= p.rows.get()) {
    if (threadIdx.x == 0) {
      tokens[row] = 0;
      logps[row] = A(0);
    }
    return;
  }
  const bool reduced = chunks.statistics != nullptr;
  const auto statistics_of_row = [&](const A* logits, const ChunkStatistics<A>* statistics) {
    row_statistics(shared, logits, p.vocab, p.temperature(row), reduced ? statistics + row * chunks.count : nullptr,
                   chunks.count);
  };
  const A* logits = p.logits + row * p.vocab;
  statistics_of_row(p.drawn_from(row), chunks.statistics);
  std::int32_t token = -1;
  if (!p.greedy(row)) {
    SampleRow<A> drawn(p.drawn_from(row), p.vocab, p.temperature(row), p.parameter(row, SampleParameter::kMinP),
                       shared);
    const bool filtered = p.keeps_first(row) || p.keeps_share(row);
    if (p.keeps_first(row)) {
      drawn.keep_first(static_cast<std::uint64_t>(p.parameter(row, SampleParameter::kTopK)));
    }
    if (p.keeps_share(row)) drawn.keep_share(p.parameter(row, SampleParameter::kTopP));
    const std::uint64_t word = random_word(static_cast<std::uint64_t>(keys[2 * row]), kStreamHash,
                                           2 * static_cast<std::uint64_t>(keys[2 * row + 1]));
    token = drawn.draw((static_cast<double>(word >> 11) + 0.5) * 0x1p-53,
                       reduced && !filtered ? chunks.masses + row * chunks.count : nullptr);
  }
  if (token < 0) token = shared.softmax.argmax;
  if (p.parts > 1) {
    __shared__ PartedSoftmaxState<A> of_parts;
    of_parts.take(logits, p.vocab, p.parts, p.temperature(row), shared.softmax, shared.scratch);
    if (threadIdx.x != 0) return;
    tokens[row] = token;
    logps[row] = of_parts.logp(token, logits[token], p.vocab / p.parts, p.temperature(row));
    return;
  }
  if (p.is_penalized(row)) {
    __syncthreads();  // all threads have read the statistics of the penalized logits, which are overwritten
    statistics_of_row(logits, chunks.unpenalized);
  }
  if (threadIdx.x != 0) return;
  tokens[row] = token;
  logps[row] = log_probability_of(logits[token], p.temperature(row), shared.softmax.lse());
}

template <class A>
void forward(const KernelCall& call) {
  const TensorView& logits = call.in(SampleIn::logits);
  const Logits<A> p{.logits = cuda_data<A>(logits),
                    .penalized = cuda_data<A>(call.in(SampleIn::penalized)),
                    .penalized_rows = cuda_data<std::int32_t>(call.in(SampleIn::penalized_rows)),
                    .parameters = cuda_data<A>(call.in(SampleIn::parameters)),
                    .rows = row_count(logits),
                    .vocab = logits.row_size(),
                    .parts = call.attributes_as<SampleAttributes>().parts};
  HONE_ASSERT(p.parts <= kMostParts, "the vocabulary has ", p.parts, " parts; on a GPU at most ", kMostParts);
  if (logits.capacity() == 0) return;
  const std::int64_t count = ceil_div(p.vocab, kVocabChunk);
  HONE_ASSERT(count <= kSampleChunks, "the vocabulary is too large to sample from on a GPU: ", p.vocab);
  const auto rows = static_cast<unsigned>(logits.capacity());
  const auto stream = stream_of(call);
  Chunks<A> chunks;
  if (reduces_chunks(logits.capacity(), p.vocab)) {
    chunks = Chunks<A>(call.workspace, logits.capacity(), count);
    const auto columns = static_cast<unsigned>(count);
    launch_dependent({dim3(columns, rows, p.penalized != nullptr ? 2 : 1), kSampleThreads}, stream,
                     sample_statistics_kernel<A>, p, chunks);
    check_launch("sample: statistics");
    launch_dependent({dim3(columns, rows), kSampleThreads}, stream, sample_mass_kernel<A>, p, chunks);
    check_launch("sample: masses");
  }
  launch_dependent({rows, kSampleThreads}, stream, sample_kernel<A>, p, chunks,
                   cuda_data<std::int64_t>(call.in(SampleIn::keys)),
                   cuda_data<std::int32_t>(call.out(SampleOut::token)), cuda_data<A>(call.out(SampleOut::logp)));
  check_launch("sample");
}

std::size_t workspace(InputTypes inputs, std::span<const Type>, const Attributes&) {
  const Type& logits = *inputs[SampleIn::logits];
  if (!reduces_chunks(logits.rows(), logits.row_size())) return 0;
  const std::int64_t chunks = ceil_div(logits.row_size(), kVocabChunk);
  return logits.dtype == DType::kF64 ? Chunks<double>::bytes(logits.rows(), chunks)
                                     : Chunks<float>::bytes(logits.rows(), chunks);
}

}  // namespace

void register_sample_cuda(KernelRegistry& registry) {
  registry.add("sample", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  call.in(SampleIn::logits).dtype() == DType::kF64 ? forward<double>(call) : forward<float>(call);
                },
                workspace});
}

}  // namespace hone
