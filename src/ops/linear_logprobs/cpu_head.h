// The output head on the CPU: logits of a block of rows and a chunk of the vocabulary at a time, their statistics and
// their gradients. For the kernels of linear_logprobs and linear_logprobs_part.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "backend/cpu/gemm.h"
#include "backend/cpu/vector_math.h"
#include "ops/linear_logprobs/linear_logprobs.h"
#include "ops/linear_logprobs/log_softmax.h"
#include "ops/rows.h"

namespace hone {

inline constexpr std::int64_t kHeadRowBlock = 512;                        // rows at a time
inline constexpr std::int64_t kJointHeadLogits = std::int64_t{16} << 20;  // logits at a time if both passes are joined

// The passes that a launch runs.
enum class CpuHeadPasses : std::uint8_t { kForward, kBackward, kJoint };

// Shapes of the GEMMs of a block of `rows` rows with a chunk of the vocabulary; the caller fills in the operands.
struct CpuHeadProducts {
  std::int64_t rows, chunk, hidden;
  DType dtype, wide;

  [[nodiscard]] GemmArgs logits() const {
    return {.m = rows,
            .n = chunk,
            .k = hidden,
            .transpose_b = Transpose::kYes,
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
            .transpose_a = Transpose::kYes,
            .a_type = wide,
            .b_type = dtype,
            .c_type = sums,
            .lda = kVocabChunk,
            .ldb = hidden,
            .ldc = hidden,
            .accumulate = true};
  }
};

// Layout of the workspace. Constructed without memory, it only computes bytes().
template <class T>
struct CpuHeadWorkspace {
  using A = Accumulator<T>;
  std::int64_t block;     // rows at a time
  std::int32_t* rows;     // [all rows]: the rows that have a target and a gradient
  T* x;                   // [block, hidden]: these rows of x
  A* logits;              // [block, kVocabChunk]; joint: [chunks of the vocabulary, block, kVocabChunk]
  A* dx;                  // [block, hidden], not forward
  A* target_logits;       // [block], not backward
  LogSoftmax<A>* states;  // [block], not backward
  std::span<std::byte> gemm;

  CpuHeadWorkspace(const Type& x_type, const Type& weight, CpuHeadPasses passes, std::span<std::byte> memory)
      : base_(memory.data()) {
    const std::int64_t hidden = x_type.row_size();
    block = std::min(kHeadRowBlock, x_type.rows());
    std::int64_t chunks = 1;
    if (passes == CpuHeadPasses::kJoint) {
      chunks = (weight.rows() + kVocabChunk - 1) / kVocabChunk;
      block = std::min(block, std::max(kJointHeadLogits / (chunks * kVocabChunk), std::int64_t{16}));
    }
    rows = take<std::int32_t>(x_type.rows());
    x = take<T>(block * hidden);
    logits = take<A>(chunks * block * kVocabChunk);
    dx = passes == CpuHeadPasses::kForward ? nullptr : take<A>(block * hidden);
    target_logits = passes == CpuHeadPasses::kBackward ? nullptr : take<A>(block);
    states = passes == CpuHeadPasses::kBackward ? nullptr : take<LogSoftmax<A>>(block);
    if (base_ != nullptr) {
      gemm = memory.subspan(used_);
      return;
    }
    const CpuHeadProducts products{block, std::min(kVocabChunk, weight.rows()), hidden, x_type.dtype,
                                   accumulator_of(x_type.dtype)};
    std::size_t gemm_bytes = gemm_workspace_bytes(products.logits(), thread_count());
    if (passes != CpuHeadPasses::kForward) {
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

// Lists the rows that have a target and for which wanted(row) is true, and returns their number.
template <class Wanted>
std::int64_t rows_with_targets(std::int64_t rows, const TensorView& targets, std::int64_t vocab, std::int32_t* list,
                               const Wanted& wanted) {
  const auto* ids = targets.as<std::int32_t>();
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (ids[row] < 0 || !wanted(row)) continue;
    HONE_ASSERT(ids[row] < vocab, "the target of row ", row, " is ", ids[row], ", outside the vocabulary of ", vocab);
    list[count++] = static_cast<std::int32_t>(row);
  }
  return count;
}

// Views of a launch's inputs and outputs; those that its passes do not have are invalid.
struct CpuHeadOperands {
  CpuHeadPasses passes;
  double temperature = 1;
  std::int64_t first = 0;  // token of the weight's first row
  std::int64_t vocab = 0;  // tokens in all
  TensorView x, weight, targets;
  TensorView dlogp, kept_lse;          // inputs of the backward pass
  TensorView logp, entropy, hit, lse;  // outputs of the forward pass
  TensorView max;                      // the largest logit / temperature, of a part of the vocabulary
  TensorView dx, dweight;              // outputs of the backward pass
};

// Collects the operands of a call; In and Out are the operand enumerations of its operation.
template <class In, class Out>
CpuHeadOperands head_operands(const KernelCall& call, CpuHeadPasses passes) {
  CpuHeadOperands o{
      .passes = passes, .x = call.in(In::x), .weight = call.in(In::weight), .targets = call.in(In::targets)};
  o.vocab = o.weight.dim(0);
  if constexpr (requires { Out::logp; }) {
    o.logp = call.out(Out::logp);
    o.entropy = call.out(Out::entropy);
    o.hit = call.out(Out::hit);
    o.lse = call.out(Out::lse);
  }
  if constexpr (requires { In::lse; }) o.kept_lse = call.in(In::lse);
  if constexpr (requires { In::dlogp; }) {
    o.dlogp = call.in(In::dlogp);
    o.dx = call.out(Out::dx);
    if (call.in(In::dweight)) o.dweight = call.out(Out::dweight);
  }
  return o;
}

// One launch of the operation.
template <class T>
class CpuHead {
 public:
  using A = Accumulator<T>;

  CpuHead(const CpuHeadOperands& operands, std::span<std::byte> workspace)
      : work_(*operands.x.type, *operands.weight.type, operands.passes, workspace),
        operands_(operands),
        x_(operands.x.as<T>()),
        weight_(operands.weight.as<T>()),
        targets_(operands.targets.as<std::int32_t>()),
        hidden_(operands.x.row_size()),
        vocab_(operands.weight.dim(0)),
        dtype_(operands.x.dtype()),
        temperature_(static_cast<A>(operands.temperature)) {}

  void run() {
    const A* dlogp = operands_.passes == CpuHeadPasses::kBackward ? operands_.dlogp.as<A>() : nullptr;
    const std::int64_t count =
        rows_with_targets(operands_.x.rows(), operands_.targets, operands_.vocab, work_.rows,
                          [&](std::int64_t row) { return dlogp == nullptr || dlogp[row] != A(0); });
    for (std::int64_t first = 0; first < count; first += work_.block) {
      gather(first, std::min(work_.block, count - first));
      if (operands_.passes != CpuHeadPasses::kBackward) take_logits();
      if (operands_.passes != CpuHeadPasses::kForward) take_gradients();
    }
  }

 private:
  // Copies the block's rows of x together.
  void gather(std::int64_t first, std::int64_t count) {
    block_rows_ = work_.rows + first;
    products_ = {count, 0, hidden_, dtype_, accumulator_of(dtype_)};
    for_rows(count, hidden_,
             [&](std::int64_t i) { std::copy_n(x_ + block_rows_[i] * hidden_, hidden_, work_.x + i * hidden_); });
  }

  // Memory of the logits of the chunk that starts at `id`.
  A* logits_of(std::int64_t id) {
    return work_.logits + (operands_.passes == CpuHeadPasses::kJoint ? id * work_.block : 0);
  }

  void compute_logits(std::int64_t id) {
    take_chunk(id);
    multiply(products_.logits(), work_.x, weight_ + id * hidden_, logits_of(id));
  }

  void take_chunk(std::int64_t id) { products_.chunk = std::min(kVocabChunk, vocab_ - id); }

  // Forward pass of the block.
  void take_logits() {
    std::uninitialized_fill_n(work_.states, products_.rows, LogSoftmax<A>(temperature_));
    std::fill_n(work_.target_logits, products_.rows, A(0));  // of targets in other parts of the vocabulary
    for (std::int64_t id = 0; id < vocab_; id += kVocabChunk) {
      compute_logits(id);
      for_rows(products_.rows, products_.chunk, [&](std::int64_t i) {
        const A* logits = logits_of(id) + i * kVocabChunk;
        work_.states[i].add(logits, products_.chunk);
        const std::int64_t target = targets_[block_rows_[i]] - operands_.first - id;
        if (target >= 0 && target < products_.chunk) work_.target_logits[i] = logits[target];
      });
    }
    store();
  }

  // Backward pass of the block.
  void take_gradients() {
    const bool logits_again = operands_.passes == CpuHeadPasses::kBackward;
    const A* dlogp = operands_.dlogp.as<A>();
    const A* lse = (operands_.kept_lse ? operands_.kept_lse : operands_.lse).as<A>();
    const DType sums = operands_.dweight ? operands_.dweight.dtype() : products_.wide;
    const std::size_t dweight_row = static_cast<std::size_t>(hidden_) * size_of(sums);
    std::fill_n(work_.dx, products_.rows * hidden_, A(0));
    for (std::int64_t id = 0; id < vocab_; id += kVocabChunk) {
      if (logits_again) compute_logits(id);
      take_chunk(id);
      A* logits = logits_of(id);
      for_rows(products_.rows, products_.chunk, [&](std::int64_t i) {
        const std::int32_t row = block_rows_[i];
        to_gradient(logits + i * kVocabChunk, targets_[row] - operands_.first - id, lse[row],
                    dlogp[row] / temperature_);
      });
      multiply(products_.input_gradient(), logits, weight_ + id * hidden_, work_.dx);
      if (!operands_.dweight) continue;
      multiply(products_.weight_gradient(sums), logits, work_.x,
               operands_.dweight.data + static_cast<std::size_t>(id) * dweight_row);
    }
    T* dx = operands_.dx.as<T>();
    for_rows(products_.rows, hidden_, [&](std::int64_t i) {
      const A* from = work_.dx + i * hidden_;
      T* to = dx + block_rows_[i] * hidden_;
      for (std::int64_t j = 0; j < hidden_; ++j) to[j] = static_cast<T>(from[j]);
    });
  }

  void multiply(GemmArgs args, const void* a, const void* b, void* c) {
    args.a = a;
    args.b = b;
    args.c = c;
    args.workspace = work_.gemm;
    gemm(args);
  }

  void store() {
    for (std::int64_t i = 0; i < products_.rows; ++i) {
      const std::int32_t row = block_rows_[i];
      const LogSoftmax<A>& state = work_.states[i];
      operands_.logp.as<A>()[row] = log_probability(work_.target_logits[i], temperature_, state.lse());
      operands_.entropy.as<A>()[row] = state.entropy();
      operands_.hit.as<A>()[row] = state.argmax() == targets_[row] - operands_.first ? A(1) : A(0);
      operands_.lse.as<A>()[row] = state.lse();
      if (operands_.max) operands_.max.as<A>()[row] = state.max();
    }
  }

  // Overwrites logits by their gradients, d logp / d logit * scale. `target` is counted from the first logit and may be
  // outside the chunk.
  void to_gradient(A* logits, std::int64_t target, A lse, A scale) const {
    const A temperature = temperature_;  // a local: the compiler must assume that the loop writes to the member
    const std::int64_t chunk = products_.chunk;
    for (std::int64_t v = 0; v < chunk; ++v) logits[v] = -scale * vexp(log_probability(logits[v], temperature, lse));
    if (target >= 0 && target < chunk) logits[target] += scale;
  }

  CpuHeadWorkspace<T> work_;
  const CpuHeadOperands& operands_;
  const T* x_;
  const T* weight_;
  const std::int32_t* targets_;
  std::int64_t hidden_, vocab_;
  DType dtype_;
  A temperature_;
  CpuHeadProducts products_{};
  const std::int32_t* block_rows_ = nullptr;
};

}  // namespace hone
