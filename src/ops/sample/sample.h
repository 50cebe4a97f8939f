// Samples the next token of each sequence from its logits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct SampleIn {
  enum : std::size_t { logits, parameters, keys, penalized, penalized_rows };
};
struct SampleOut {
  enum : std::size_t { token, logp };
};

// The columns of `parameters`.
enum class SampleParameter : std::uint8_t {
  kTemperature,  // 0: greedy, the token with the largest logit, and the lowest id among equals
  kTopP,         // 1: off
  kMinP,         // 0: off
  kTopK,         // 0: off
};
inline constexpr std::int64_t kSampleParameters = 4;

struct SampleAttributes {
  std::int64_t parts = 1;  // equal parts of the vocabulary, whose log-softmax is merged as a tensor group merges it

  template <class Visitor>
  void fields(Visitor& v) {
    v("parts", parts);
  }
};

// Outputs, each [samples].
struct Sampled {
  Tensor token;  // i32
  Tensor logp;   // log-probability of the token, in logits' dtype
};

// Draws a token for each sample.
//   logits      [samples, vocab], f32 (f64 in programs of f64)
//   parameters  [samples, kSampleParameters] of the same dtype
//   keys        i64 [samples, 2]: seed and position
//   penalized   of the same type as logits, optional: logits to draw from in place of `logits`
//   penalized_rows  i32 [samples], only and always with `penalized`: 0 if a sample is drawn from `logits` nevertheless;
//                   its row of `penalized` is then not read
//
// The order of filters is vLLM's: logits are divided by the temperature; min_p keeps the tokens with at least min_p
// times the largest probability; of these, top_k keeps the k most probable; of these, renormalised, top_p keeps the
// fewest, most probable first, whose mass is at least top_p. Between equals the lower id comes first. The token is the
// first one in the order of ids at which the cumulative mass of the kept tokens exceeds a random number, which depends
// only on seed and position.
//
// logp is the log-softmax of logits / temperature (greedy: of the logits) over the whole vocabulary by log_softmax.h,
// bitwise that of linear_logprobs, or with several parts that of linear_logprobs_part of so many ranks; `penalized`
// does not change it. If a logit is NaN or +inf, logp is NaN. In a tensor group that divides the vocabulary there are
// as many parts as ranks.
[[nodiscard]] Sampled sample(Tensor logits, Tensor parameters, Tensor keys, Tensor penalized = {},
                             Tensor penalized_rows = {}, const SampleAttributes& attributes = {});

}  // namespace hone
