// Log-probabilities of a row of logits on a GPU as a tensor group computes them (parted_softmax.h on the CPU).
#pragma once

#include <cstdint>

#include "ops/linear_logprobs/log_softmax.cuh"
#include "ops/linear_logprobs/merge_parts.h"

namespace hone {

inline constexpr std::int64_t kMostParts = 64;  // of a vocabulary

// Statistics of the parts of a row, in shared memory.
template <class A>
struct PartedSoftmaxState {
  A lses[kMostParts];
  double lse;  // of all parts

  // Computes the statistics; all threads of the block call it, and may read them afterwards. `row` and `scratch` are in
  // shared memory and overwritten.
  __device__ void take(const A* logits, std::int64_t vocab, std::int64_t parts, A temperature, LogSoftmaxState<A>& row,
                       LogSoftmaxScratch<A>& scratch) {
    const std::int64_t part = vocab / parts;
    __syncthreads();  // all threads have read what `row` and this object had before
    for (std::int64_t i = 0; i < parts; ++i) {
      log_softmax_row(row, logits + i * part, part, temperature, scratch);
      if (threadIdx.x == 0) lses[i] = row.lse();
    }
    if (threadIdx.x == 0) {
      lse = merged_lse(parts, [&](std::int64_t i) { return static_cast<double>(lses[i]); });
    }
    __syncthreads();
  }
  // Returns the log-probability of a token with this logit in the row. part: tokens of a part.
  [[nodiscard]] __device__ A logp(std::int64_t token, A logit, std::int64_t part, A temperature) const {
    const A of_part = lses[token / part];
    return static_cast<A>(merged_logp(static_cast<double>(log_probability_of(logit, temperature, of_part)),
                                      static_cast<double>(of_part), lse));
  }
};

}  // namespace hone
