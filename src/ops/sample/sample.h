// Draws the next token of each sequence.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// The operands, in order.
struct SampleIn {
  enum : std::size_t { logits, parameters, keys, penalized };
};
struct SampleOut {
  enum : std::size_t { token, logp };
};

// The columns of `parameters`.
enum class SampleParameter : std::uint8_t {
  temperature,  // 0: the token with the largest logit, the lowest id of several
  top_p,        // 1: off
  min_p,        // 0: off
  top_k,        // 0: off
};
inline constexpr std::int64_t kSampleParameters = 4;

// Each [samples].
struct Sampled {
  Tensor token;  // i32
  Tensor logp;   // of the token, in logits' type
};

// logits [samples, vocab], f32 (f64 in programs of f64), parameters [samples, kSampleParameters] of the same type, keys
// i64[samples, 2]: seed and position.
//
// As vLLM does: logits are divided by the temperature; min_p keeps the tokens with at least min_p times the largest
// probability; of these top_k keeps the k most probable; of these, renormalised, top_p keeps the fewest, most probable
// first, that have at least this mass. Between equals the lower id comes first. The token is the first one, in the
// order of ids, at which the mass of what is left exceeds a random number, which depends on seed and position alone.
//
// logp is the log-softmax of logits / temperature (greedy: of the logits) over the whole vocabulary, by log_softmax.h:
// bitwise what linear_logprobs gives. Where logits are NaN or +inf it is NaN.
//
// penalized, of the same type as logits, may be left out: what the token is drawn from in place of the logits, of which
// logp then still is.
[[nodiscard]] Sampled sample(Tensor logits, Tensor parameters, Tensor keys, Tensor penalized = {});

}  // namespace hone
