#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include "backend/cpu/gemm.h"
#include "backend/cpu/vector_math.h"
#include "ops/linear_logprobs/linear_logprobs.h"
#include "ops/linear_logprobs/log_softmax.h"
#include "ops/registry.h"
#include "ops/rows.h"

namespace hone {
namespace {

constexpr std::int64_t kRowBlock = 512;

// The products of a block of `rows` rows with a chunk of the vocabulary, without operands.
struct Products {
  std::int64_t rows, chunk, hidden;
  DType dtype, wide;

  [[nodiscard]] GemmArgs logits() const {
    return {.m = rows,
            .n = chunk,
            .k = hidden,
            .transpose_b = Transpose::yes,
            .a_type = dtype,
            .b_type = dtype,
            .c_type = wide,
            .lda = hidden,
            .ldb = hidden,
            .ldc = kVocabChunk};
  }
  // dx += dlogits weight
  [[nodiscard]] GemmArgs input_gradient() const {
    return {.m = rows,
            .n = hidden,
            .k = chunk,
            .a_type = wide,
            .b_type = dtype,
            .c_type = wide,
            .lda = kVocabChunk,
            .ldb = hidden,
            .ldc = hidden,
            .accumulate = true};
  }
  // dweight += dlogits^T x
  [[nodiscard]] GemmArgs weight_gradient(DType sums) const {
    return {.m = chunk,
            .n = hidden,
            .k = rows,
            .transpose_a = Transpose::yes,
            .a_type = wide,
            .b_type = dtype,
            .c_type = sums,
            .lda = kVocabChunk,
            .ldb = hidden,
            .ldc = hidden,
            .accumulate = true};
  }
};

// The pieces of a workspace: made over no memory, it says how much is needed.
template <class T>
struct Workspace {
  using A = Accumulator<T>;
  std::int64_t block;     // rows at a time
  std::int32_t* rows;     // [all rows]: those that count
  T* x;                   // [block, hidden]: those rows of x
  A* logits;              // [block, kVocabChunk]
  A* dx;                  // [block, hidden], backward only
  A* target_logits;       // [block], forward only
  LogSoftmax<A>* states;  // [block], forward only
  std::span<std::byte> gemm;

  Workspace(const Type& x_type, const Type& weight, bool backward, std::span<std::byte> memory) : base_(memory.data()) {
    const std::int64_t hidden = x_type.row_size();
    block = std::min(kRowBlock, x_type.rows());
    rows = take<std::int32_t>(x_type.rows());
    x = take<T>(block * hidden);
    logits = take<A>(block * kVocabChunk);
    dx = backward ? take<A>(block * hidden) : nullptr;
    target_logits = backward ? nullptr : take<A>(block);
    states = backward ? nullptr : take<LogSoftmax<A>>(block);
    if (base_ != nullptr) {
      gemm = memory.subspan(used_);
      return;
    }
    const Products products{block, std::min(kVocabChunk, weight.rows()), hidden, x_type.dtype,
                            accumulator_of(x_type.dtype)};
    std::size_t gemm_bytes = gemm_workspace_bytes(products.logits(), thread_count());
    if (backward) {
      gemm_bytes = std::max(gemm_bytes, gemm_workspace_bytes(products.input_gradient(), thread_count()));
      for (const DType sums : {products.wide, products.dtype}) {
        gemm_bytes = std::max(gemm_bytes, gemm_workspace_bytes(products.weight_gradient(sums), thread_count()));
      }
    }
    take<std::byte>(static_cast<std::int64_t>(gemm_bytes));
  }
  [[nodiscard]] std::size_t bytes() const { return used_; }

 private:
  template <class Element>
  Element* take(std::int64_t count) {
    std::byte* at = base_ == nullptr ? nullptr : base_ + used_;
    used_ += align_up(static_cast<std::size_t>(count) * sizeof(Element));
    return reinterpret_cast<Element*>(at);
  }

  std::byte* base_;
  std::size_t used_ = 0;
};

// Lists the rows with wanted(row) and returns their number.
template <class Wanted>
std::int64_t list_rows(std::int64_t rows, const TensorView& targets, std::int64_t vocab, std::int32_t* list,
                       const Wanted& wanted) {
  const auto* ids = targets.as<std::int32_t>();
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (ids[row] < 0 || !wanted(row)) continue;
    HONE_ASSERT(ids[row] < vocab, "the target of row ", row, " is ", ids[row], " in a vocabulary of ", vocab);
    list[count++] = static_cast<std::int32_t>(row);
  }
  return count;
}

// One launch, forward or backward: what both do alike.
template <class T>
class Head {
 public:
  using A = Accumulator<T>;

  Head(const KernelCall& call, const TensorView& x, const TensorView& weight, const TensorView& targets, bool backward)
      : work_(*x.type, *weight.type, backward, call.workspace),
        x_(x.as<T>()),
        weight_(weight.as<T>()),
        targets_(targets.as<std::int32_t>()),
        hidden_(x.row_size()),
        vocab_(weight.dim(0)),
        dtype_(x.dtype()),
        temperature_(static_cast<A>(call.attributes_as<LinearLogprobsAttributes>().temperature)) {}

  void forward(const KernelCall& call) {
    for (const TensorView& output : call.outputs) std::memset(output.data, 0, output.type->bytes());
    const std::int64_t count =
        list_rows(call.in(0).rows(), call.in(2), vocab_, work_.rows, [](std::int64_t) { return true; });
    for (std::int64_t first = 0; first < count; first += work_.block) {
      gather(first, std::min(work_.block, count - first));
      std::uninitialized_fill_n(work_.states, products_.rows, LogSoftmax<A>(temperature_));
      for (std::int64_t id = 0; id < vocab_; id += kVocabChunk) {
        compute_logits(id);
        for_rows(products_.rows, products_.chunk, [&](std::int64_t i) {
          const A* logits = work_.logits + i * kVocabChunk;
          work_.states[i].add(logits, products_.chunk);
          const std::int64_t target = targets_[block_rows_[i]] - id;
          if (target >= 0 && target < products_.chunk) work_.target_logits[i] = logits[target];
        });
      }
      store(call);
    }
  }

  void backward(const KernelCall& call) {
    std::memset(call.out(0).data, 0, call.out(0).type->bytes());
    const A* dlogp = call.in(0).as<A>();
    const A* lse = call.in(4).as<A>();
    const DType sums = call.in(5) ? call.out(1).dtype() : products_.wide;
    std::byte* dweight = call.in(5) ? call.out(1).data : nullptr;
    const std::size_t dweight_row = static_cast<std::size_t>(hidden_) * size_of(sums);
    const std::int64_t count = list_rows(call.in(1).rows(), call.in(3), vocab_, work_.rows,
                                         [&](std::int64_t row) { return dlogp[row] != A(0); });
    for (std::int64_t first = 0; first < count; first += work_.block) {
      gather(first, std::min(work_.block, count - first));
      std::fill_n(work_.dx, products_.rows * hidden_, A(0));
      for (std::int64_t id = 0; id < vocab_; id += kVocabChunk) {
        compute_logits(id);
        for_rows(products_.rows, products_.chunk, [&](std::int64_t i) {
          const std::int32_t row = block_rows_[i];
          to_gradient(work_.logits + i * kVocabChunk, targets_[row] - id, lse[row], dlogp[row] / temperature_);
        });
        multiply(products_.input_gradient(), work_.logits, weight_ + id * hidden_, work_.dx);
        if (dweight == nullptr) continue;
        multiply(products_.weight_gradient(sums), work_.logits, work_.x,
                 dweight + static_cast<std::size_t>(id) * dweight_row);
      }
      T* dx = call.out(0).as<T>();
      for_rows(products_.rows, hidden_, [&](std::int64_t i) {
        const A* from = work_.dx + i * hidden_;
        T* to = dx + block_rows_[i] * hidden_;
        for (std::int64_t j = 0; j < hidden_; ++j) to[j] = static_cast<T>(from[j]);
      });
    }
  }

 private:
  void gather(std::int64_t first, std::int64_t count) {
    block_rows_ = work_.rows + first;
    products_ = {count, 0, hidden_, dtype_, accumulator_of(dtype_)};
    for_rows(count, hidden_,
             [&](std::int64_t i) { std::copy_n(x_ + block_rows_[i] * hidden_, hidden_, work_.x + i * hidden_); });
  }

  void compute_logits(std::int64_t id) {
    products_.chunk = std::min(kVocabChunk, vocab_ - id);
    multiply(products_.logits(), work_.x, weight_ + id * hidden_, work_.logits);
  }

  void multiply(GemmArgs args, const void* a, const void* b, void* c) {
    args.a = a;
    args.b = b;
    args.c = c;
    args.workspace = work_.gemm;
    gemm(args);
  }

  void store(const KernelCall& call) {
    for (std::int64_t i = 0; i < products_.rows; ++i) {
      const std::int32_t row = block_rows_[i];
      const LogSoftmax<A>& state = work_.states[i];
      call.out(0).as<A>()[row] = log_probability(work_.target_logits[i], temperature_, state.lse());
      call.out(1).as<A>()[row] = state.entropy();
      call.out(2).as<A>()[row] = state.argmax() == targets_[row] ? A(1) : A(0);
      call.out(3).as<A>()[row] = state.lse();
    }
  }

  // dlogit = d logp / d logit * scale; the target, counted from the first logit, may lie outside of the chunk.
  void to_gradient(A* logits, std::int64_t target, A lse, A scale) const {
    const A temperature = temperature_;  // as far as the compiler knows, the loop may write to the member
    const std::int64_t chunk = products_.chunk;
    for (std::int64_t v = 0; v < chunk; ++v) logits[v] = -scale * vexp(log_probability(logits[v], temperature, lse));
    if (target >= 0 && target < chunk) logits[target] += scale;
  }

  Workspace<T> work_;
  const T* x_;
  const T* weight_;
  const std::int32_t* targets_;
  std::int64_t hidden_, vocab_;
  DType dtype_;
  A temperature_;
  Products products_{};
  const std::int32_t* block_rows_ = nullptr;
};

// With `x` the index of x among the inputs: weight and targets follow it.
template <std::size_t x>
std::size_t workspace(InputTypes inputs, std::span<const Type>, const Attributes&) {
  std::size_t bytes = 0;
  for_floating(inputs[x]->dtype,
               [&]<class T>() { bytes = Workspace<T>(*inputs[x], *inputs[x + 1], x == 1, {}).bytes(); });
  return bytes;
}

void forward(const KernelCall& call) {
  for_floating(call.in(0).dtype(),
               [&]<class T>() { Head<T>(call, call.in(0), call.in(1), call.in(2), false).forward(call); });
}

void backward(const KernelCall& call) {
  for_floating(call.in(1).dtype(),
               [&]<class T>() { Head<T>(call, call.in(1), call.in(2), call.in(3), true).backward(call); });
}

}  // namespace

void register_linear_logprobs_cpu(KernelRegistry& registry) {
  registry.add("linear_logprobs", DeviceKind::cpu, {forward, workspace<0>});
  registry.add("linear_logprobs_backward", DeviceKind::cpu, {backward, workspace<1>});
}

}  // namespace hone
