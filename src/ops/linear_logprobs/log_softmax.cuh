// Log-softmax of a row of logits on a GPU (log_softmax.h on the CPU): a block processes kVocabChunk logits of a row at
// a time. Trainer and sampler both use it, so that the same logits give bitwise the same log-probabilities.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/cuda_kernel.cuh"
#include "ops/linear_logprobs/log_softmax.h"

namespace hone {

inline constexpr int kLogSoftmaxThreads = 256;
// Packs of four neighbouring logits that a thread has of a chunk.
inline constexpr int kLogSoftmaxPacks = static_cast<int>(kVocabChunk) / kLogSoftmaxThreads / 4;

// logit / temperature; the division is skipped if the temperature is 1.
template <class A>
__device__ inline A tempered(A logit, A temperature) {
  return temperature == A(1) ? logit : logit / temperature;
}

template <class A>
__device__ inline A log_probability_of(A logit, A temperature, A lse) {
  return tempered(logit, temperature) - lse;
}

// A thread's logits of a chunk: packs of four neighbours.
template <class A>
struct LogitChunk {
  A values[kLogSoftmaxPacks][4];

  // Index in the chunk of the first logit of this thread's pack `i`.
  __device__ static int place(int i) { return (i * kLogSoftmaxThreads + static_cast<int>(threadIdx.x)) * 4; }

  // Loads a chunk of `count` logits; the values past the end become `missing`. `aligned`: the address of the logits is
  // a multiple of 16 bytes.
  __device__ void load(const A* logits, int count, bool aligned, A missing) {
#pragma unroll
    for (int i = 0; i < kLogSoftmaxPacks; ++i) {
      const int at = place(i);
      if (aligned && at + 4 <= count) {
        constexpr int kSize = kPackSize<A>;
#pragma unroll
        for (int e = 0; e < 4; e += kSize) {
          const auto pack = *reinterpret_cast<const Pack<A, kSize>*>(logits + at + e);
#pragma unroll
          for (int k = 0; k < kSize; ++k) values[i][e + k] = pack[k];
        }
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e) values[i][e] = at + e < count ? logits[at + e] : missing;
      }
    }
  }
};

// Statistics of one chunk of a row. Ids are counted from the chunk's first.
template <class A>
struct ChunkStatistics {
  double sum;       // sum of e = exp(d), d = logits[v] / temperature - max
  double weighted;  // sum of d e
  A max_logit;
  A max;
  std::int32_t argmax;  // the lowest id among those with the largest logit
};

// Statistics of a row after its first chunks.
template <class A>
struct LogSoftmaxState {
  double sum;  // as in ChunkStatistics
  double weighted;
  A max_logit;
  A max;
  std::int32_t argmax;

  __device__ void clear() {
    sum = 0;
    weighted = 0;
    max_logit = max = -std::numeric_limits<A>::infinity();
    argmax = 0;
  }
  [[nodiscard]] __device__ A lse() const { return static_cast<A>(static_cast<double>(max) + log(sum)); }
  [[nodiscard]] __device__ A entropy() const { return static_cast<A>(log(sum) - weighted / sum); }

  // Merges the next chunk; the chunks of a row must be added in ascending order of ids, which fixes the result's bits.
  __device__ void add(const ChunkStatistics<A>& chunk, std::int32_t first_id) {
    if (chunk.max_logit > max_logit) {
      max_logit = chunk.max_logit;
      argmax = first_id + chunk.argmax;
    }
    if (chunk.max == -std::numeric_limits<A>::infinity()) {
      sum += chunk.sum;
    } else {
      merge(chunk.max, chunk.sum, chunk.weighted);
    }
  }

 private:
  // Rescales the side with the smaller maximum to the larger one, which adds `shift` to each d and multiplies each e by
  // exp(shift), and adds both.
  __device__ void merge(A chunk_max, double chunk_sum, double chunk_weighted) {
    const bool newer = chunk_max > max;
    const double shift = newer ? static_cast<double>(max) - chunk_max : static_cast<double>(chunk_max) - max;
    const double factor = exp(shift);
    const double old_weighted = newer ? weighted : chunk_weighted;
    const double old_sum = newer ? sum : chunk_sum;
    const double brought = old_sum == 0 ? 0.0 : factor * (old_weighted + shift * old_sum);
    weighted = newer ? brought + chunk_weighted : weighted + brought;
    sum = newer ? sum * factor + chunk_sum : sum + factor * chunk_sum;
    if (newer) max = chunk_max;
  }
};

// Shared memory of chunk_statistics: one entry for each warp.
template <class A>
struct LogSoftmaxScratch {
  A max[kLogSoftmaxThreads / 32];
  std::int32_t argmax[kLogSoftmaxThreads / 32];
  A sum[kLogSoftmaxThreads / 32];
  A weighted[kLogSoftmaxThreads / 32];
};

// Computes the statistics of a chunk, which was loaded with missing = -infinity. All kLogSoftmaxThreads threads of the
// block call it; thread 0 gets the result.
template <class A>
__device__ ChunkStatistics<A> chunk_statistics(const LogitChunk<A>& chunk, A temperature,
                                               LogSoftmaxScratch<A>& scratch) {
  constexpr A kNothing = -std::numeric_limits<A>::infinity();
  constexpr int kWarps = kLogSoftmaxThreads / 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  A best = kNothing;
  std::int32_t place = std::numeric_limits<std::int32_t>::max();
#pragma unroll
  for (int i = 0; i < kLogSoftmaxPacks; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (chunk.values[i][e] > best) {
        best = chunk.values[i][e];
        place = LogitChunk<A>::place(i) + e;
      }
    }
  }
  const auto reduce_best = [&](int lanes) {
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      const A other = __shfl_xor_sync(0xFFFFFFFFu, best, distance);
      const std::int32_t other_place = __shfl_xor_sync(0xFFFFFFFFu, place, distance);
      if (other > best || (other == best && other_place < place)) {
        best = other;
        place = other_place;
      }
    }
  };
  reduce_best(32);
  __syncthreads();  // the previous chunk's entries of `scratch` have been read
  if (lane == 0) {
    scratch.max[warp] = best;
    scratch.argmax[warp] = place;
  }
  __syncthreads();
  best = scratch.max[lane % kWarps];
  place = scratch.argmax[lane % kWarps];
  reduce_best(kWarps);

  const A max = tempered(best, temperature);
  A sum = 0;
  A weighted = 0;
#pragma unroll
  for (int i = 0; i < kLogSoftmaxPacks; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (max == kNothing) {  // all logits of the chunk are -infinity or NaN; a NaN must reach the sum
        if (isnan(chunk.values[i][e])) sum = chunk.values[i][e];
        continue;
      }
      const A difference = tempered(chunk.values[i][e], temperature) - max;
      const A exponential = std::exp(difference);
      sum += exponential;
      if (exponential > A(0)) weighted += difference * exponential;
    }
  }
  sum = warp_sum(sum);
  weighted = warp_sum(weighted);
  if (lane == 0) {
    scratch.sum[warp] = sum;
    scratch.weighted[warp] = weighted;
  }
  __syncthreads();
  ChunkStatistics<A> result{.sum = 0, .weighted = 0, .max_logit = best, .max = max, .argmax = place};
  if (threadIdx.x != 0) return result;
  for (int i = 0; i < kWarps; ++i) {
    result.sum += static_cast<double>(scratch.sum[i]);
    result.weighted += static_cast<double>(scratch.weighted[i]);
  }
  return result;
}

// Computes the statistics of a whole row into `state`, which is in shared memory; every thread may read it afterwards.
template <class A>
__device__ void log_softmax_row(LogSoftmaxState<A>& state, const A* logits, std::int64_t vocab, A temperature,
                                LogSoftmaxScratch<A>& scratch) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(logits) % 16 == 0;
  if (threadIdx.x == 0) state.clear();
  for (std::int64_t first = 0; first < vocab; first += kVocabChunk) {
    const auto count = static_cast<int>(vocab - first < kVocabChunk ? vocab - first : kVocabChunk);
    LogitChunk<A> chunk;
    chunk.load(logits + first, count, aligned, -std::numeric_limits<A>::infinity());
    const ChunkStatistics<A> statistics = chunk_statistics(chunk, temperature, scratch);
    if (threadIdx.x == 0) state.add(statistics, static_cast<std::int32_t>(first));
  }
  __syncthreads();
}

}  // namespace hone
