// The sampling options of commands that generate answers.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "core/options.h"
#include "engine/request.h"

namespace hone {

inline constexpr std::string_view kRepetitionPenaltyHelp =
    "Divides positive logits of tokens that have occurred, in the prompt too, and multiplies others; 1: none";

struct SamplingKeys {
  double temperature = 0.6;
  double top_p = 0.95;
  std::int64_t top_k = 0;
  double min_p = 0;
  double repetition_penalty = 1;
  std::int64_t seed = 42;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Sampling");
    v("temperature", temperature, "Divides the logits; 0: greedy decoding", at_least(0));
    v("top_p", top_p, "Sample from the likeliest tokens of this total probability",
      {.least = 0, .most = 1, .least_excluded = true});
    v("top_k", top_k, "Sample from this many likeliest tokens; 0: all", at_least(0));
    v("min_p", min_p, "Sample from tokens of at least this share of the likeliest one's probability", within(0, 1));
    v("repetition_penalty", repetition_penalty, kRepetitionPenaltyHelp, above(0));
    v("seed", seed, "Seed of the random sampling", at_least(0));
  }

  // Returns parameters with seed 0; the caller sets the seed of each answer.
  [[nodiscard]] SamplingParams params(std::int64_t max_tokens, std::vector<TokenId> stop_token_ids) const {
    return {.temperature = temperature,
            .top_p = top_p,
            .min_p = min_p,
            .top_k = top_k,
            .repetition_penalty = repetition_penalty,
            .max_tokens = max_tokens,
            .stop_token_ids = std::move(stop_token_ids)};
  }
};

}  // namespace hone
