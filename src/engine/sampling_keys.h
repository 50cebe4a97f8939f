// The sampling options of commands that generate answers.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/options.h"
#include "core/yaml.h"
#include "engine/request.h"

namespace hone {

inline constexpr std::string_view kRepetitionPenaltyHelp =
    "Divides positive logits of tokens that have occurred, in the prompt too, and multiplies others; 1: none";

inline constexpr Range kTokenIds = within(0, std::numeric_limits<TokenId>::max());

struct SamplingKeys {
  double temperature = 0.6;
  double top_p = 0.95;
  std::int64_t top_k = 0;
  double min_p = 0;
  double repetition_penalty = 1;
  double frequency_penalty = 0;
  double presence_penalty = 0;
  YamlValue logit_bias;
  std::vector<std::int64_t> allowed_token_ids, banned_token_ids;
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
    v("frequency_penalty", frequency_penalty, "Subtracted from a token's logit for each time that the answer has it",
      within(-2, 2));
    v("presence_penalty", presence_penalty, "Subtracted from the logits of tokens that the answer has", within(-2, 2));
    v("logit_bias", logit_bias, "Added to the logits of tokens, from -100 to 100: {TOKEN_ID: NUMBER}");
    v("allowed_token_ids", allowed_token_ids, "Draw only these tokens; empty: all", kTokenIds);
    v("banned_token_ids", banned_token_ids, "Never draw these tokens", kTokenIds);
    v("seed", seed, "Seed of the random sampling", at_least(0));
  }

  // Returns parameters with seed 0; the caller sets the seed of each answer. Throws Error if logit_bias is not a map
  // from token ids to numbers.
  [[nodiscard]] SamplingParams params(std::int64_t max_tokens, std::vector<TokenId> stop_token_ids) const;
  // Returns true if tokens are drawn from other logits than the model's. Throws as params() does.
  [[nodiscard]] bool adjusts_logits() const { return params(1, {}).adjusts_logits(); }
};

// Returns the penalties, biases and lists of tokens by the names of their keys; null for each that is not in use.
[[nodiscard]] Json logit_adjustments(const SamplingParams& sampling);

}  // namespace hone
