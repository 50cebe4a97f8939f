// cuBLASLt gives the logits of a block of rows in f32 (a logit of bf16 would be off by up to 2^-9 of itself, and so
// would its log-probability), then a kernel takes the rows. The forward pass takes whole rows, so that they come from
// the very product that gives a sampler its logits. The backward pass takes more rows and a chunk of the vocabulary:
// each block of rows reads and writes all of dweight. There the logits become their gradients where they lie, rounded
// to the type of x for the products with weight and x. Both passes joined take whole rows, as many as a larger
// workspace holds. Rows without a target are computed too: how many there are is known to the device only. Their
// gradients are zero.
#include <algorithm>
#include <string_view>

#include "ops/cuda_kernel.cuh"
#include "ops/linear/products.h"
#include "ops/linear_logprobs/linear_logprobs.h"
#include "ops/linear_logprobs/log_softmax.cuh"
#include "ops/linear_logprobs/logits.cuh"
#include "ops/registry.h"

namespace hone {
namespace {

constexpr std::int64_t kLogits = std::int64_t{96} << 20;          // at a time, forward
constexpr std::int64_t kGradientLogits = std::int64_t{64} << 20;  // at a time, backward
constexpr std::int64_t kGradientRows = 8192;                      // at a time, at most
constexpr std::int64_t kJointLogits = std::int64_t{320} << 20;    // at a time, both passes joined
constexpr std::int64_t kRowUnit = 256;                            // that blocks of rows are rounded down to

// Which of the passes a launch runs.
enum class Passes : std::uint8_t { forward, backward, joint };

// How many rows to take at a time so that no block has more than `most` and all have about as many.
std::int64_t block_rows(std::int64_t rows, std::int64_t most) {
  const std::int64_t block = ceil_div(rows, ceil_div(rows, std::max<std::int64_t>(most, 1)));
  return std::min(rows, block > kRowUnit ? ceil_div(block, kRowUnit) * kRowUnit : block);
}

// The pieces of a workspace: made over no memory, it says how much is needed.
template <class T>
struct Workspace {
  using A = CudaAccumulator<T>;
  static constexpr bool kNarrow = !std::is_same_v<T, A>;

  std::int64_t block;  // rows at a time
  std::int64_t chunk;  // ids at a time, and the logits' row stride
  std::span<std::byte> gemm;
  A* logits;                                 // [block, chunk]; their gradients start where their rows do
  ChunkStatistics<A>* statistics = nullptr;  // [all rows, chunks of the vocabulary]; joint: [block, ...]
  A* dx = nullptr;                           // [block, hidden], where dx is narrower
  std::size_t bytes = 0;

  Workspace(const Type& x, const Type& weight, Passes passes, std::byte* memory) {
    const bool backward = passes == Passes::backward;
    const std::int64_t rows = std::max<std::int64_t>(x.rows(), 1);
    const std::int64_t vocab = std::max<std::int64_t>(weight.rows(), 1);
    if (backward) {
      block = std::min(kGradientRows, rows);
      chunk = std::clamp(kGradientLogits / block / kVocabChunk, std::int64_t{1}, ceil_div(vocab, kVocabChunk)) *
              kVocabChunk;
    } else {
      chunk = ceil_div(vocab, kLogitStride) * kLogitStride;
      block = std::max<std::int64_t>((passes == Passes::joint ? kJointLogits : kLogits) / vocab, 1);
      if (block > kRowUnit) block = block / kRowUnit * kRowUnit;
      block = passes == Passes::joint ? block_rows(rows, block) : std::min(block, rows);
    }
    const auto take = [&]<class Element>(Element*& piece, std::int64_t count) {
      piece = reinterpret_cast<Element*>(memory + bytes);
      bytes += align_up(static_cast<std::size_t>(count) * sizeof(Element));
    };
    std::byte* scratch = nullptr;
    take(scratch, static_cast<std::int64_t>(kCublasWorkspace));
    gemm = {scratch, kCublasWorkspace};
    take(logits, block * chunk);
    // The sum over a vocabulary in several products is rounded once.
    if (kNarrow && (backward || vocab % kCublasUnit != 0)) take(dx, block * x.row_size());
    if (!backward) take(statistics, (passes == Passes::joint ? block : rows) * ceil_div(vocab, kVocabChunk));
  }
};

// One launch. In and Out: those of the operation whose passes it runs.
template <class T, class In, class Out>
class Head {
 public:
  using A = CudaAccumulator<T>;
  static constexpr DType kType = DTypeOf<std::conditional_t<Workspace<T>::kNarrow, BFloat16, T>>::value;
  static constexpr DType kWide = std::is_same_v<A, double> ? DType::f64 : DType::f32;

  Head(const KernelCall& call, Passes passes)
      : call_(call),
        work_(*call.in(In::x).type, *call.in(In::weight).type, passes, call.workspace.data()),
        x_(cuda_data<T>(call.in(In::x))),
        weight_(cuda_data<T>(call.in(In::weight))),
        targets_(call.in(In::targets).template as<std::int32_t>()),
        count_(row_count(call.in(In::x))),
        hidden_(call.in(In::x).row_size()),
        vocab_(call.in(In::weight).dim(0)),
        temperature_(static_cast<A>(call.attributes_as<LinearLogprobsAttributes>().temperature)) {
    HONE_ASSERT(call.workspace.size() >= work_.bytes, "a workspace of ", call.workspace.size(), " bytes");
  }

  void forward() {
    for_pieces([&](const LogitsPiece<A>& piece, std::int64_t rows) {
      take(piece, rows, work_.statistics + piece.first_row * chunks());
    });
    merge(0, count_.capacity);
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
      take(piece, rows, work_.statistics);
      merge(piece.first_row, rows);
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

  void take(const LogitsPiece<A>& piece, std::int64_t rows, ChunkStatistics<A>* statistics) {
    logprob_chunks<<<dim3(static_cast<unsigned>(rows), static_cast<unsigned>(chunks())), kLogSoftmaxThreads, 0,
                     stream_of(call_)>>>(piece, statistics, outputs().logp);
    check_launch("linear_logprobs");
  }

  void merge(std::int64_t first_row, std::int64_t rows) {
    if (rows == 0) return;
    logprob_merge<<<static_cast<unsigned>(ceil_div(rows, kLogprobMergeThreads)), kLogprobMergeThreads, 0,
                    stream_of(call_)>>>(work_.statistics, first_row, rows, static_cast<std::int32_t>(chunks()), vocab_,
                                        count_, targets_, temperature_, outputs());
    check_launch("linear_logprobs: merge");
  }

  void differentiate(const LogitsPiece<A>& piece, std::int64_t rows, const A* dlogp, const A* lse) {
    logits_to_gradient<T><<<static_cast<unsigned>(rows), kLogSoftmaxThreads, 0, stream_of(call_)>>>(piece, dlogp, lse);
    check_launch("linear_logprobs: gradients of logits");
  }

  // body(piece, its rows) with the logits of each piece; rows outside, ids inside.
  template <class Body>
  void for_pieces(const Body& body) {
    for (std::int64_t row = 0; row < count_.capacity; row += work_.block) {
      const std::int64_t rows = std::min(work_.block, count_.capacity - row);
      for (std::int64_t id = 0; id < vocab_; id += work_.chunk) {
        const std::int64_t ids = std::min(work_.chunk, vocab_ - id);
        multiply({.m = rows,
                  .n = ids,
                  .k = hidden_,
                  .transpose_b = Transpose::yes,
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

  // In elements of T, whose rows lie as far apart as those of the logits.
  [[nodiscard]] std::int64_t gradient_stride() const {
    return work_.chunk * static_cast<std::int64_t>(sizeof(A) / sizeof(T));
  }

  // dx = dlogits weight, summed over the chunks.
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
    narrowed_rows<T>
        <<<static_cast<unsigned>(ceil_div(count, 4 * 256)), 256, 0, stream_of(call_)>>>(work_.dx, dx, count);
    check_launch("linear_logprobs: gradients of rows");
  }

  // dweight += dlogits^T x
  void weight_gradient(const LogitsPiece<A>& piece, std::int64_t rows, const TensorView& dweight) {
    const std::size_t row_bytes = static_cast<std::size_t>(hidden_) * size_of(dweight.dtype());
    multiply({.m = piece.ids,
              .n = hidden_,
              .k = rows,
              .transpose_a = Transpose::yes,
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
  for_cuda_floating(call.in(In::x).dtype(), [&]<class T>() {
    Head<T, In, Out> head(call, passes);
    if constexpr (passes == Passes::forward) head.forward();
    if constexpr (passes == Passes::backward) head.backward();
    if constexpr (passes == Passes::joint) head.joint();
  });
}

template <Passes passes, class In, class Out>
void add_kernel(KernelRegistry& registry, std::string_view op) {
  registry.add(op, DeviceKind::cuda, {run<passes, In, Out>, workspace<passes, In>});
}

}  // namespace

void register_linear_logprobs_cuda(KernelRegistry& registry) {
  add_kernel<Passes::forward, LinearLogprobsIn, LinearLogprobsOut>(registry, "linear_logprobs");
  add_kernel<Passes::backward, LinearLogprobsBackwardIn, LinearLogprobsBackwardOut>(registry,
                                                                                    "linear_logprobs_backward");
  add_kernel<Passes::joint, LinearLogprobsJointIn, LinearLogprobsJointOut>(registry, "linear_logprobs_joint");
}

}  // namespace hone
