// Kernels over blocks of logits: the log-softmax of each row, and the gradients of the logits, in place.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "ops/cuda_kernel.cuh"
#include "ops/linear_logprobs/log_softmax.cuh"

namespace hone {

inline constexpr int kLogprobMergeThreads = 64;

// The block of rows and range of ids that a launch processes.
template <class A>
struct LogitsPiece {
  A* logits;            // [rows of the block, stride], of which the first `ids` columns are used
  std::int64_t stride;  // elements from one row to the next
  std::int64_t first_row;
  RowCount rows;
  const std::int32_t* targets;
  std::int32_t first_id, ids;
  A temperature;
};

template <class A>
struct LogprobOutputs {
  A *logp, *entropy, *hit, *lse;
  A* max = nullptr;  // the largest logit / temperature, if wanted
};

// Computes `statistics` [rows of the piece, chunks] of a piece that holds all ids, and stores the logit of each row's
// target in target_logits[row]. blockIdx.x is the row, blockIdx.y the chunk.
template <class A>
__global__ void __launch_bounds__(kLogSoftmaxThreads)
    logprob_chunks(LogitsPiece<A> piece, ChunkStatistics<A>* statistics, A* target_logits) {
  __shared__ LogSoftmaxScratch<A> scratch;
  __shared__ std::int32_t shared_target;
  const std::int64_t row = piece.first_row + blockIdx.x;
  if (threadIdx.x == 0) shared_target = row < piece.rows.get() ? piece.targets[row] : -1;
  // The logits are loaded before it is known whether the row has a target, so as not to wait for that.
  const std::int32_t first = static_cast<std::int32_t>(blockIdx.y) * static_cast<std::int32_t>(kVocabChunk);
  const int count = min(static_cast<int>(kVocabChunk), piece.ids - first);
  const A* logits = piece.logits + blockIdx.x * piece.stride + first;
  LogitChunk<A> chunk;
  chunk.load(logits, count, reinterpret_cast<std::uintptr_t>(logits) % 16 == 0, -std::numeric_limits<A>::infinity());
  __syncthreads();
  const std::int32_t target = shared_target;
  if (target < 0) return;
  const ChunkStatistics<A> result = chunk_statistics(chunk, piece.temperature, scratch);
  if (threadIdx.x != 0) return;
  statistics[static_cast<std::int64_t>(blockIdx.x) * gridDim.y + blockIdx.y] = result;
  if (target >= first && target - first < count) target_logits[row] = logits[target - first];
}

// Merges the chunks of each of `count` rows from `first_row` on, in ascending order, and writes the outputs. A thread
// has one row; statistics[0] is that of the first row. outputs.logp holds the targets' logits on entry.
template <class A>
__global__ void __launch_bounds__(kLogprobMergeThreads)
    logprob_merge(const ChunkStatistics<A>* statistics, std::int64_t first_row, std::int64_t count, std::int32_t chunks,
                  std::int64_t vocab, RowCount rows, const std::int32_t* targets, A temperature,
                  LogprobOutputs<A> outputs) {
  const std::int64_t local = static_cast<std::int64_t>(blockIdx.x) * kLogprobMergeThreads + threadIdx.x;
  if (local >= count) return;
  const std::int64_t row = first_row + local;
  const std::int32_t target = row < rows.get() ? targets[row] : -1;
  if (target < 0) {
    outputs.logp[row] = outputs.entropy[row] = outputs.hit[row] = outputs.lse[row] = A(0);
    if (outputs.max != nullptr) outputs.max[row] = A(0);
    return;
  }
  LogSoftmaxState<A> state;
  state.clear();
  for (std::int32_t chunk = 0; chunk < chunks; ++chunk) {
    state.add(statistics[local * chunks + chunk], chunk * static_cast<std::int32_t>(kVocabChunk));
  }
  // A target outside the vocabulary gives NaN.
  const A logit = target < vocab ? outputs.logp[row] : std::numeric_limits<A>::quiet_NaN();
  const A lse = state.lse();
  outputs.logp[row] = log_probability_of(logit, temperature, lse);
  outputs.entropy[row] = state.entropy();
  outputs.hit[row] = state.argmax == target ? A(1) : A(0);
  outputs.lse[row] = lse;
  if (outputs.max != nullptr) outputs.max[row] = state.max;
}

// Overwrites logits by their gradients, dlogit = ((1 for the target, otherwise 0) - probability) * dlogp / temperature.
// A block has one row and takes chunk after chunk; it writes only to memory whose logits it has read in the same or an
// earlier chunk.
template <class T, class A>
__global__ void __launch_bounds__(kLogSoftmaxThreads)
    logits_to_gradient(LogitsPiece<A> piece, const A* __restrict__ dlogp, const A* __restrict__ lse) {
  const std::int64_t local = blockIdx.x;
  const std::int64_t row = piece.first_row + local;
  const bool used = row < piece.rows.get();
  const std::int32_t target = used ? piece.targets[row] : -1;
  const A weight = used ? dlogp[row] : A(0);
  const A* logits = piece.logits + local * piece.stride;
  T* gradients = reinterpret_cast<T*>(piece.logits + local * piece.stride);
  const bool counts = target >= 0 && weight != A(0);
  const A scale = counts ? weight / piece.temperature : A(0);
  const A row_lse = counts ? lse[row] : A(0);
  const std::int32_t target_place = target - piece.first_id;
  for (std::int32_t at = 0; at < piece.ids; at += static_cast<std::int32_t>(kVocabChunk)) {
    const int count = min(static_cast<int>(kVocabChunk), piece.ids - at);
    LogitChunk<A> chunk;
    if (counts) chunk.load(logits + at, count, true, A(0));
    if constexpr (!std::is_same_v<T, A>) __syncthreads();
#pragma unroll
    for (int i = 0; i < kLogSoftmaxPacks; ++i) {
      const int place = LogitChunk<A>::place(i);
      Pack<T, 4> result;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        A gradient = A(0);
        if (counts) {
          gradient = -scale * std::exp(log_probability_of(chunk.values[i][e], piece.temperature, row_lse));
          if (at + place + e == target_place) gradient += scale;
        }
        result[e] = narrowed<T>(gradient);
      }
      // The row stride is a multiple of a pack (kLogitStride or kVocabChunk), so that a pack may pass the last id.
      if (place < count) *reinterpret_cast<Pack<T, 4>*>(gradients + at + place) = result;
    }
  }
}

template <class T, class A>
__global__ void narrowed_rows(const A* __restrict__ from, T* __restrict__ to, std::int64_t count) {
  const std::int64_t at = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
  if (at + 4 <= count) {
    const auto wide = *reinterpret_cast<const Pack<A, 4>*>(from + at);
    Pack<T, 4> result;
#pragma unroll
    for (int i = 0; i < 4; ++i) result[i] = narrowed<T>(wide[i]);
    *reinterpret_cast<Pack<T, 4>*>(to + at) = result;
    return;
  }
  for (std::int64_t i = at; i < count; ++i) to[i] = narrowed<T>(from[i]);
}

}  // namespace hone
