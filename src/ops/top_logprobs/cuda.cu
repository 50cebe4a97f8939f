// The most probable tokens of a row on a GPU. A block has one row and finds one token after the other: each thread
// looks for the best of its tokens that come after the last one found, and the block takes the best of these. The block
// of a row that asks for nothing ends without reading it; a row that asks for n tokens is read n + 1 times, from the L2
// cache.
#include <limits>

#include "ops/linear_logprobs/log_softmax.cuh"
#include "ops/linear_logprobs/parted_softmax.cuh"
#include "ops/registry.h"
#include "ops/sample/sample.h"
#include "ops/top_logprobs/top_logprobs.h"

namespace hone {
namespace {

// A token and its logit, in the order in which tokens are listed. Without a token the id is -1.
template <class A>
struct Ranked {
  A logit;
  std::int32_t id;

  [[nodiscard]] __device__ bool before(const Ranked& other) const {
    if (id < 0 || other.id < 0) return id >= 0;
    return logit != other.logit ? logit > other.logit : id < other.id;
  }
};

template <class A>
__device__ Ranked<A> best_of_warp(Ranked<A> best) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    const Ranked<A> other{__shfl_xor_sync(0xffffffffu, best.logit, lane), __shfl_xor_sync(0xffffffffu, best.id, lane)};
    if (other.before(best)) best = other;
  }
  return best;
}

template <class A>
struct TopShared {
  LogSoftmaxState<A> softmax;
  LogSoftmaxScratch<A> scratch;
  PartedSoftmaxState<A> parts;  // if the vocabulary has several
  Ranked<A> of_warp[kLogSoftmaxThreads / 32];
  Ranked<A> last;  // the token found last
};

// Returns the first token after shared.last, to all threads.
template <class A>
__device__ Ranked<A> next_token(const A* logits, std::int64_t vocab, bool is_first, TopShared<A>& shared) {
  const Ranked<A> last = shared.last;
  Ranked<A> best{A(0), -1};
  for (auto id = static_cast<std::int32_t>(threadIdx.x); id < vocab; id += kLogSoftmaxThreads) {
    const Ranked<A> token{logits[id], id};
    if (token.logit != token.logit || !(is_first || last.before(token))) continue;
    if (token.before(best)) best = token;
  }
  best = best_of_warp(best);
  if (threadIdx.x % 32 == 0) shared.of_warp[threadIdx.x / 32] = best;
  __syncthreads();
  best = shared.of_warp[0];
#pragma unroll
  for (int warp = 1; warp < kLogSoftmaxThreads / 32; ++warp) {
    if (shared.of_warp[warp].before(best)) best = shared.of_warp[warp];
  }
  __syncthreads();  // all have read what the next call writes
  if (threadIdx.x == 0) shared.last = best;
  __syncthreads();
  return best;
}

template <class A>
__global__ void __launch_bounds__(kLogSoftmaxThreads)
    top_logprobs_kernel(const A* all_logits, const A* parameters, const std::int32_t* counts, RowCount rows,
                        std::int64_t vocab, std::int64_t most, std::int64_t parts, std::int32_t* ids, A* logps) {
  __shared__ TopShared<A> shared;
  const std::int64_t row = blockIdx.x;
  const bool used = row < rows.get();
  const std::int32_t asked = used ? counts[row] : 0;
  const std::int64_t count = asked < most ? asked : most;
  for (std::int64_t i = (count > 0 ? count : 0) + threadIdx.x; i < most; i += kLogSoftmaxThreads) {
    ids[row * most + i] = used ? -1 : 0;
    logps[row * most + i] = A(0);
  }
  if (count <= 0) return;
  const A* logits = all_logits + row * vocab;
  const A given = parameters[row * kSampleParameters + static_cast<int>(SampleParameter::kTemperature)];
  const A temperature = given > A(0) ? given : A(1);
  if (parts > 1) {
    shared.parts.take(logits, vocab, parts, temperature, shared.softmax, shared.scratch);
  } else {
    log_softmax_row(shared.softmax, logits, vocab, temperature, shared.scratch);
  }
  const A lse = shared.softmax.lse();
  const auto logp_of = [&](const Ranked<A>& token) {
    return parts > 1 ? shared.parts.logp(token.id, token.logit, vocab / parts, temperature)
                     : log_probability_of(token.logit, temperature, lse);
  };
  for (std::int64_t i = 0; i < count; ++i) {
    const Ranked<A> token = next_token(logits, vocab, i == 0, shared);
    if (threadIdx.x == 0) {
      ids[row * most + i] = token.id;
      logps[row * most + i] = token.id < 0 ? A(0) : logp_of(token);
    }
    if (token.id >= 0) continue;
    // No token is left.
    for (std::int64_t rest = i + threadIdx.x; rest < count; rest += kLogSoftmaxThreads) {
      ids[row * most + rest] = -1;
      logps[row * most + rest] = A(0);
    }
    return;
  }
}

template <class A>
void list(const KernelCall& call) {
  const TensorView& logits = call.in(TopLogprobsIn::logits);
  if (logits.capacity() == 0) return;
  const auto [most, parts] = call.attributes_as<TopLogprobsAttributes>();
  HONE_ASSERT(parts <= kMostParts, "the vocabulary has ", parts, " parts; on a GPU at most ", kMostParts);
  top_logprobs_kernel<A><<<static_cast<unsigned>(logits.capacity()), kLogSoftmaxThreads, 0, stream_of(call)>>>(
      cuda_data<A>(logits), cuda_data<A>(call.in(TopLogprobsIn::parameters)),
      cuda_data<std::int32_t>(call.in(TopLogprobsIn::counts)), row_count(logits), logits.row_size(), most, parts,
      cuda_data<std::int32_t>(call.out(TopLogprobsOut::ids)), cuda_data<A>(call.out(TopLogprobsOut::logps)));
  check_launch("top_logprobs");
}

}  // namespace

void register_top_logprobs_cuda(KernelRegistry& registry) {
  registry.add("top_logprobs", DeviceKind::kCuda,
               {[](const KernelCall& call) {
                  call.in(TopLogprobsIn::logits).dtype() == DType::kF64 ? list<double>(call) : list<float>(call);
                },
                {}});
}

}  // namespace hone
