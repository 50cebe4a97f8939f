#include "engine/logit_entries.h"

#include <limits>

#include "ops/adjust_logits/adjust_logits.h"

namespace hone {

LogitEntries::LogitEntries(const SamplingParams& sampling, std::span<const TokenId> prompt)
    : counts_tokens_(sampling.has_penalties()), restricts_(!sampling.allowed_token_ids.empty()) {
  constexpr float kBanned = -std::numeric_limits<float>::infinity();
  for (const TokenId token : sampling.allowed_token_ids) place_of(token, 0);
  // Tokens of the prompt may not be drawn if they are not allowed, but with restricts() an entry would allow them.
  const float unlisted = restricts_ ? kBanned : 0;
  if (sampling.repetition_penalty != 1) {
    for (const TokenId token : prompt) occurrences_[place_of(token, unlisted)] = occurrences_of(true, 0);
  }
  for (const auto& [token, bias] : sampling.logit_bias) biases_[place_of(token, unlisted)] += static_cast<float>(bias);
  for (const TokenId token : sampling.banned_token_ids) biases_[place_of(token, kBanned)] = kBanned;
}

void LogitEntries::add_generated(TokenId token) {
  if (counts_tokens_) occurrences_[place_of(token, 0)] += occurrences_of(false, 1);
}

std::size_t LogitEntries::place_of(TokenId token, float bias) {
  const auto [found, is_new] = places_.try_emplace(token, ids_.size());
  if (is_new) {
    ids_.push_back(token);
    occurrences_.push_back(occurrences_of(false, 0));
    biases_.push_back(bias);
  }
  return found->second;
}

}  // namespace hone
