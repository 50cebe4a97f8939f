// Output head and log-softmax on a GPU, a block of rows at a time; the logits are never all in memory.
//
//                     ids of the vocabulary, chunks of kVocabChunk = 4,096
//                     | chunk 0 | chunk 1 | ... | last |
//   rows  0 .. b-1    |  logits [b, vocab] f32 = x weight^T by cuBLASLt  |  forward: whole rows
//     row r           |  max, sum | max, sum | ... |      -> merged in ascending order -> logp, entropy, hit, lse
//   rows  b .. 2b-1   |  the same memory again
//
// Logits are f32: a bf16 logit, and so its log-probability, would be off by up to 2^-9 of its size.
// Sizes of a block in f32: forward at most 96 Mi logits (384 MiB), which is 512 rows of a vocabulary of 151,936;
// backward 64 Mi (256 MiB) as 8,192 rows x 8,192 ids, since each block of rows reads and writes all of dweight; both
// passes joined 320 Mi (1.25 GiB), 2,048 rows of that vocabulary. The forward pass takes whole rows, so that they come
// from the very GEMM that gives a sampler its logits.
//
// Steps of the forward pass for a block of rows (log_softmax.cuh, logits.cuh):
//   1. GEMM
//   2. logprob_chunks, one block of 256 threads to a row and chunk, 16 logits in the registers of a thread:
//      maximum and lowest argmax by shuffles; __syncthreads(): those of the 8 warps are in shared memory; sums of
//      exp(d) and d exp(d) by shuffles; __syncthreads(): those of the warps too; thread 0 adds the 8 in order in f64
//   3. logprob_merge, one thread to a row, after the last block: merges the chunks in ascending order, in f64
// Steps of the backward pass for a piece (the joint pass runs 1 to 3 above first and skips this GEMM):
//   1. GEMM: the logits again
//   2. logits_to_gradient, one block of 256 threads to a row, chunk after chunk: overwrites the logits with their
//      gradients, rounded to the type of x. A bf16 row begins where its f32 row did; __syncthreads() between the loads
//      and the stores of a chunk, because it is written over logits of the same or an earlier chunk
//   3. GEMMs: dx (+)= dlogits weight, in f32 over the pieces and rounded once; dweight += dlogits^T x
//
// A row does not depend on the other rows: cuBLASLt runs one kernel for given sizes, block sizes follow from capacities
// and not from the rows in use, and the chunks of a row are reduced by fixed trees and merged in order. Rows without a
// target are multiplied too, because only the device knows how many there are; their results and gradients are zero.
#include <algorithm>
#include <string_view>

#include "ops/cuda_kernel.cuh"
#include "ops/linear/products.h"
#include "ops/linear_logprobs/linear_logprobs.h"
#include "ops/linear_logprobs/log_softmax.cuh"
#include "ops/linear_logprobs/logits.cuh"
#include "ops/linear_logprobs/part.cuh"
#include "ops/ranks/communication.h"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr std::int64_t kLogits = std::int64_t{96} << 20;          // logits at a time, forward
constexpr std::int64_t kGradientLogits = std::int64_t{64} << 20;  // logits at a time, backward
constexpr std::int64_t kGradientRows = 8192;                      // rows at a time at most, backward
constexpr std::int64_t kJointLogits = std::int64_t{320} << 20;    // logits at a time, both passes joined
constexpr std::int64_t kRowUnit = 256;                            // larger blocks of rows are a multiple of it

// The passes that a launch runs.
enum class Passes : std::uint8_t { kForward, kBackward, kJoint };

// Rows of a block such that no block has more than `most` rows and all have about the same number.
std::int64_t block_rows(std::int64_t rows, std::int64_t most) {
  const std::int64_t block = ceil_div(rows, ceil_div(rows, std::max<std::int64_t>(most, 1)));
  return std::min(rows, block > kRowUnit ? ceil_div(block, kRowUnit) * kRowUnit : block);
}

// Layout of the workspace. Constructed without memory, it only computes `bytes`.
template <class T>
struct Workspace {
  using A = CudaAccumulator<T>;
  static constexpr bool kNarrow = !std::is_same_v<T, A>;

  std::int64_t block;  // rows at a time
  std::int64_t chunk;  // ids at a time, and the row stride of the logits in elements
  std::span<std::byte> gemm;
  A* logits;                                 // [block, chunk]; a row of gradients begins where its logits did
  ChunkStatistics<A>* statistics = nullptr;  // [all rows, chunks of the vocabulary]; joint: [block, ...]
  A* dx = nullptr;                           // [block, hidden], if the output dx is narrower than its sum
  std::size_t bytes = 0;

  Workspace(const Type& x, const Type& weight, Passes passes, std::byte* memory) {
    const bool backward = passes == Passes::kBackward;
    const std::int64_t rows = std::max<std::int64_t>(x.rows(), 1);
    const std::int64_t vocab = std::max<std::int64_t>(weight.rows(), 1);
    if (backward) {
      block = std::min(kGradientRows, rows);
      chunk = std::clamp(kGradientLogits / block / kVocabChunk, std::int64_t{1}, ceil_div(vocab, kVocabChunk)) *
              kVocabChunk;
    } else {
      chunk = ceil_div(vocab, kLogitStride) * kLogitStride;
      block = std::max<std::int64_t>((passes == Passes::kJoint ? kJointLogits : kLogits) / vocab, 1);
      if (block > kRowUnit) block = block / kRowUnit * kRowUnit;
      block = passes == Passes::kJoint ? block_rows(rows, block) : std::min(block, rows);
    }
    const auto take = [&]<class Element>(Element*& piece, std::int64_t count) {
      piece = reinterpret_cast<Element*>(memory + bytes);
      bytes += align_up(static_cast<std::size_t>(count) * sizeof(Element));
    };
    std::byte* scratch = nullptr;
    take(scratch, static_cast<std::int64_t>(kCublasWorkspace));
    gemm = {scratch, kCublasWorkspace};
    take(logits, block * chunk);
    // If dx is a sum of several GEMMs, it is summed here and rounded once.
    if (kNarrow && (backward || vocab % kCublasAlignment != 0)) take(dx, block * x.row_size());
    if (!backward) take(statistics, (passes == Passes::kJoint ? block : rows) * ceil_div(vocab, kVocabChunk));
  }
};

// One launch of an operation whose operand enumerations are In and Out.
template <class T, class In, class Out>
class Head {
 public:
  using A = CudaAccumulator<T>;
  static constexpr DType kType = DTypeOf<std::conditional_t<Workspace<T>::kNarrow, BFloat16, T>>::value;
  static constexpr DType kWide = std::is_same_v<A, double> ? DType::kF64 : DType::kF32;

  // targets: [rows], rows of the weight, or negative; of a part of the vocabulary, the number of rows for a target
  // elsewhere.
  Head(const KernelCall& call, Passes passes, double temperature, const std::int32_t* targets)
      : call_(call),
        work_(*call.in(In::x).type, *call.in(In::weight).type, passes, call.workspace.data()),
        x_(cuda_data<T>(call.in(In::x))),
        weight_(cuda_data<T>(call.in(In::weight))),
        targets_(targets),
        count_(row_count(call.in(In::x))),
        hidden_(call.in(In::x).row_size()),
        vocab_(call.in(In::weight).dim(0)),
        temperature_(static_cast<A>(temperature)) {
    HONE_ASSERT(call.workspace.size() >= work_.bytes, "the workspace is too small: ", call.workspace.size(), " bytes");
  }

  void forward() { forward(outputs()); }

  // The same with the outputs elsewhere.
  void forward(const LogprobOutputs<A>& outputs) {
    for_pieces([&](const LogitsPiece<A>& piece, std::int64_t rows) {
      take(piece, rows, work_.statistics + piece.first_row * chunks(), outputs);
    });
    merge(0, count_.capacity, outputs);
  }

  void backward() {
    const A* dlogp = cuda_data<A>(call_.in(In::dlogp));
    const A* lse = cuda_data<A>(call_.in(In::lse));
    T* dx = cuda_data<T>(call_.out(Out::dx));
    const bool wanted = static_cast<bool>(call_.in(In::dweight));
    for_pieces([&](const LogitsPiece<A>& piece, std::int64_t rows) {
      differentiate(piece, rows, dlogp, lse);
      input_gradient(piece, rows, dx + piece.first_row * hidden_);
      if (wanted) weight_gradient(piece, rows, call_.out(Out::dweight));
    });
  }

  void joint() {
    const A* dlogp = cuda_data<A>(call_.in(In::dlogp));
    const A* lse = cuda_data<A>(call_.out(Out::lse));
    T* dx = cuda_data<T>(call_.out(Out::dx));
    const bool wanted = static_cast<bool>(call_.in(In::dweight));
    for_pieces([&](const LogitsPiece<A>& piece, std::int64_t rows) {
      take(piece, rows, work_.statistics, outputs());
      merge(piece.first_row, rows, outputs());
      differentiate(piece, rows, dlogp, lse);
      input_gradient(piece, rows, dx + piece.first_row * hidden_);
      if (wanted) weight_gradient(piece, rows, call_.out(Out::dweight));
    });
  }

 private:
  [[nodiscard]] std::int64_t chunks() const { return ceil_div(vocab_, kVocabChunk); }

  [[nodiscard]] LogprobOutputs<A> outputs() const {
    return {cuda_data<A>(call_.out(Out::logp)), cuda_data<A>(call_.out(Out::entropy)),
            cuda_data<A>(call_.out(Out::hit)), cuda_data<A>(call_.out(Out::lse))};
  }

  void take(const LogitsPiece<A>& piece, std::int64_t rows, ChunkStatistics<A>* statistics,
            const LogprobOutputs<A>& outputs) {
    logprob_chunks<<<dim3(static_cast<unsigned>(rows), static_cast<unsigned>(chunks())), kLogSoftmaxThreads, 0,
                     stream_of(call_)>>>(piece, statistics, outputs.logp);
    check_launch("linear_logprobs");
  }

  void merge(std::int64_t first_row, std::int64_t rows, const LogprobOutputs<A>& outputs) {
    if (rows == 0) return;
    logprob_merge<<<static_cast<unsigned>(ceil_div(rows, kLogprobMergeThreads)), kLogprobMergeThreads, 0,
                    stream_of(call_)>>>(work_.statistics, first_row, rows, static_cast<std::int32_t>(chunks()), vocab_,
                                        count_, targets_, temperature_, outputs);
    check_launch("linear_logprobs: merge");
  }

  void differentiate(const LogitsPiece<A>& piece, std::int64_t rows, const A* dlogp, const A* lse) {
    logits_to_gradient<T, A>
        <<<static_cast<unsigned>(rows), kLogSoftmaxThreads, 0, stream_of(call_)>>>(piece, dlogp, lse);
    check_launch("linear_logprobs: gradients of logits");
  }

  // Computes the logits of each piece and calls body(piece, its rows); the outer loop is over rows.
  template <class Body>
  void for_pieces(const Body& body) {
    for (std::int64_t row = 0; row < count_.capacity; row += work_.block) {
      const std::int64_t rows = std::min(work_.block, count_.capacity - row);
      for (std::int64_t id = 0; id < vocab_; id += work_.chunk) {
        const std::int64_t ids = std::min(work_.chunk, vocab_ - id);
        multiply({.m = rows,
                  .n = ids,
                  .k = hidden_,
                  .transpose_b = Transpose::kYes,
                  .a_type = kType,
                  .b_type = kType,
                  .c_type = kWide,
                  .a = x_ + row * hidden_,
                  .b = weight_ + id * hidden_,
                  .c = work_.logits,
                  .lda = hidden_,
                  .ldb = hidden_,
                  .ldc = work_.chunk});
        body(LogitsPiece<A>{.logits = work_.logits,
                            .stride = work_.chunk,
                            .first_row = row,
                            .rows = count_,
                            .targets = targets_,
                            .first_id = static_cast<std::int32_t>(id),
                            .ids = static_cast<std::int32_t>(ids),
                            .temperature = temperature_},
             rows);
      }
    }
  }

  // Row stride of the gradients in elements of T; in bytes it is that of the logits.
  [[nodiscard]] std::int64_t gradient_stride() const {
    return work_.chunk * static_cast<std::int64_t>(sizeof(A) / sizeof(T));
  }

  // dx = dlogits weight, summed over the chunks of the vocabulary; rounded after the last one.
  void input_gradient(const LogitsPiece<A>& piece, std::int64_t rows, T* dx) {
    const bool has_sum = work_.dx != nullptr;
    multiply({.m = rows,
              .n = hidden_,
              .k = piece.ids,
              .a_type = kType,
              .b_type = kType,
              .c_type = has_sum ? kWide : kType,
              .a = piece.logits,
              .b = weight_ + piece.first_id * hidden_,
              .c = has_sum ? static_cast<void*>(work_.dx) : dx,
              .lda = gradient_stride(),
              .ldb = hidden_,
              .ldc = hidden_,
              .accumulate = piece.first_id > 0});
    if (!has_sum || piece.first_id + piece.ids < vocab_) return;
    const std::int64_t count = rows * hidden_;
    narrowed_rows<T, A>
        <<<static_cast<unsigned>(ceil_div(count, 4 * 256)), 256, 0, stream_of(call_)>>>(work_.dx, dx, count);
    check_launch("linear_logprobs: gradients of rows");
  }

  // dweight += dlogits^T x
  void weight_gradient(const LogitsPiece<A>& piece, std::int64_t rows, const TensorView& dweight) {
    const std::size_t row_bytes = static_cast<std::size_t>(hidden_) * size_of(dweight.dtype());
    multiply({.m = piece.ids,
              .n = hidden_,
              .k = rows,
              .transpose_a = Transpose::kYes,
              .a_type = kType,
              .b_type = kType,
              .c_type = dweight.dtype(),
              .a = piece.logits,
              .b = x_ + piece.first_row * hidden_,
              .c = dweight.data + static_cast<std::size_t>(piece.first_id) * row_bytes,
              .lda = gradient_stride(),
              .ldb = hidden_,
              .ldc = hidden_,
              .accumulate = true});
  }

  void multiply(GemmArgs args) {
    args.workspace = work_.gemm;
    cuda_device_of(call_).cublas().gemm(args, stream_of(call_));
  }

  const KernelCall& call_;
  Workspace<T> work_;
  const T* x_;
  const T* weight_;
  const std::int32_t* targets_;
  RowCount count_;
  std::int64_t hidden_, vocab_;
  A temperature_;
};

template <Passes passes, class In>
std::size_t workspace(InputTypes inputs, std::span<const Type>, const Attributes&) {
  const Type& x = *inputs[In::x];
  std::size_t bytes = 0;
  for_cuda_floating(x.dtype, [&]<class T>() { bytes = Workspace<T>(x, *inputs[In::weight], passes, nullptr).bytes; });
  return bytes;
}

template <Passes passes, class In, class Out>
void run(const KernelCall& call) {
  const double temperature = call.attributes_as<LinearLogprobsAttributes>().temperature;
  const auto* targets = cuda_data<std::int32_t>(call.in(In::targets));
  for_cuda_floating(call.in(In::x).dtype(), [&]<class T>() {
    Head<T, In, Out> head(call, passes, temperature, targets);
    if constexpr (passes == Passes::kForward) head.forward();
    if constexpr (passes == Passes::kBackward) head.backward();
    if constexpr (passes == Passes::kJoint) head.joint();
  });
}

void run_part(const KernelCall& call) {
  using In = LinearLogprobsIn;
  using Out = LinearLogprobsOut;
  const auto& a = call.attributes_as<LinearLogprobsPartAttributes>();
  const std::int64_t rows = call.in(In::x).capacity();
  if (rows == 0) return;
  const PartWorkspace part(*call.in(In::targets).type, *call.out(Out::logp).type, a.ranks);
  std::byte* const statistics = call.workspace.last(part.statistics).data();
  auto* own_targets = reinterpret_cast<std::int32_t*>(statistics - part.targets);
  const std::int64_t count = call.in(In::weight).dim(0);
  take_part_targets(call, call.in(In::targets), count, own_targets);
  for_cuda_floating(call.in(In::x).dtype(), [&]<class T>() {
    using A = CudaAccumulator<T>;
    A* const all = reinterpret_cast<A*>(statistics);
    A* const own = all + tensor_group().rank() * kPartStatistics * rows;
    const auto at = [&](std::int64_t which) { return own + which * rows; };
    Head<T, In, Out>(call, Passes::kForward, a.temperature, own_targets)
        .forward({at(PartStatistic::logp), at(PartStatistic::entropy), at(PartStatistic::hit), at(PartStatistic::lse),
                  at(PartStatistic::max)});
    gather_blocks(statistics, static_cast<std::size_t>(kPartStatistics * rows) * sizeof(A));
    merge_parts_kernel<<<static_cast<unsigned>(ceil_div(rows, kPartThreads)), kPartThreads, 0, stream_of(call)>>>(
        all, a.ranks, row_count(call.in(In::x)), cuda_data<std::int32_t>(call.in(In::targets)), count,
        LogprobOutputs<A>{cuda_data<A>(call.out(Out::logp)), cuda_data<A>(call.out(Out::entropy)),
                          cuda_data<A>(call.out(Out::hit)), cuda_data<A>(call.out(Out::lse))});
    check_launch("linear_logprobs_part: merge");
  });
}

void run_part_backward(const KernelCall& call) {
  using In = LinearLogprobsBackwardIn;
  using Out = LinearLogprobsBackwardOut;
  const TensorView& targets = call.in(In::targets);
  auto* own_targets = reinterpret_cast<std::int32_t*>(call.workspace.last(align_up(targets.type->bytes())).data());
  take_part_targets(call, targets, call.in(In::weight).dim(0), own_targets);
  const double temperature = call.attributes_as<LinearLogprobsPartAttributes>().temperature;
  for_cuda_floating(call.in(In::x).dtype(),
                    [&]<class T>() { Head<T, In, Out>(call, Passes::kBackward, temperature, own_targets).backward(); });
}

template <Passes passes, class In>
std::size_t part_workspace(InputTypes inputs, std::span<const Type> outputs, const Attributes& attributes) {
  const std::size_t head = align_up(workspace<passes, In>(inputs, outputs, attributes));
  const Type& targets = *inputs[In::targets];
  if constexpr (passes == Passes::kBackward) return head + align_up(targets.bytes());
  const PartWorkspace part(targets, outputs[LinearLogprobsOut::logp],
                           attributes.as<LinearLogprobsPartAttributes>().ranks);
  return head + part.targets + part.statistics;
}

template <Passes passes, class In, class Out>
void add_kernel(KernelRegistry& registry, std::string_view op) {
  registry.add(op, DeviceKind::kCuda, {run<passes, In, Out>, workspace<passes, In>});
}

}  // namespace

void register_linear_logprobs_cuda(KernelRegistry& registry) {
  add_kernel<Passes::kForward, LinearLogprobsIn, LinearLogprobsOut>(registry, "linear_logprobs");
  add_kernel<Passes::kBackward, LinearLogprobsBackwardIn, LinearLogprobsBackwardOut>(registry,
                                                                                     "linear_logprobs_backward");
  add_kernel<Passes::kJoint, LinearLogprobsJointIn, LinearLogprobsJointOut>(registry, "linear_logprobs_joint");
  registry.add("linear_logprobs_part", DeviceKind::kCuda,
               {run_part, part_workspace<Passes::kForward, LinearLogprobsIn>});
  registry.add("linear_logprobs_part_backward", DeviceKind::kCuda,
               {run_part_backward, part_workspace<Passes::kBackward, LinearLogprobsBackwardIn>});
}

}  // namespace hone
