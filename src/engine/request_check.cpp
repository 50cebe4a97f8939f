#include "engine/request_check.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/error.h"
#include "engine/engine_options.h"

namespace hone {

void check_adjustments(const SamplingParams& sampling, std::int64_t vocab_size) {
  const auto check_range = [](std::string_view name, double value, double most) {
    if (!(std::abs(value) <= most)) throw Error(name, text_of("is ", value, ", expected ", -most, " to ", most));
  };
  const auto check_token = [&](std::string_view name, TokenId token) {
    if (token < 0 || token >= vocab_size)
      throw Error(name, text_of("token ", token, " is outside the vocabulary of ", vocab_size));
  };
  const double repetition = sampling.repetition_penalty;
  if (!(repetition > 0))
    throw Error("repetition_penalty", text_of("is ", repetition, ", expected above 0"), "1 turns it off");
  check_range("frequency_penalty", sampling.frequency_penalty, 2);
  check_range("presence_penalty", sampling.presence_penalty, 2);
  for (const auto& [token, bias] : sampling.logit_bias) {
    check_token("logit_bias", token);
    check_range("logit_bias", bias, 100);
  }
  if (sampling.min_tokens < 0 || sampling.min_tokens > sampling.max_tokens)
    throw Error("min_tokens", text_of("is ", sampling.min_tokens, ", expected 0 to max_tokens, ", sampling.max_tokens));
  for (const TokenId token : sampling.allowed_token_ids) check_token("allowed_token_ids", token);
  for (const TokenId token : sampling.banned_token_ids) check_token("banned_token_ids", token);
  const std::int64_t listed = std::ssize(sampling.allowed_token_ids) + std::ssize(sampling.banned_token_ids) +
                              static_cast<std::int64_t>(sampling.logit_bias.size());
  if (listed > kMaxListedTokens) {
    throw Error("logit_bias", text_of("names ", listed, " tokens together with allowed_token_ids and banned_token_ids"),
                text_of("at most ", kMaxListedTokens));
  }
  const auto banned = [&](TokenId token) { return std::ranges::count(sampling.banned_token_ids, token) > 0; };
  bool some_left = !sampling.allowed_token_ids.empty();
  if (some_left) {
    some_left = !std::ranges::all_of(sampling.allowed_token_ids, banned);
  } else {
    for (TokenId token = 0; token < vocab_size && !some_left; ++token) some_left = !banned(token);
  }
  if (!some_left) throw Error("banned_token_ids", "leaves no token that may be drawn");
}

}  // namespace hone
