// Passes sampled tokens from one step of generation to the next on the device, so that the host can launch a step
// before it has read the tokens of the step before.
#pragma once

#include <cstddef>
#include <cstdint>

#include "program/program.h"

namespace hone {

// Indices of the inputs and outputs.
struct TokenFeedbackIn {
  enum : std::size_t { tokens, sampled };
};
struct TokenFeedbackStoreIn {
  enum : std::size_t { token, sampled };
};

// The input token that stands for row `sample` of the step before.
[[nodiscard]] constexpr std::int32_t token_of_sample(std::int64_t sample) {
  return static_cast<std::int32_t>(-1 - sample);
}

// The sample that token_of_sample() stands for; negative for an ordinary token.
[[nodiscard]] constexpr std::int32_t sample_of_token(std::int32_t token) { return -1 - token; }

// Returns tokens i32 [rows], in which each token_of_sample(s) is replaced by sampled[s]; sampled is i32 [n].
[[nodiscard]] Tensor token_feedback(Tensor tokens, Tensor sampled);
// Copies token i32 [samples] to the beginning of the state `sampled` i32 [n], samples <= n, and returns the state.
Tensor token_feedback_store(Tensor token, Tensor sampled);

}  // namespace hone
