#include "engine/sampling_keys.h"

#include <charconv>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/json_value.h"

namespace hone {

namespace {

template <class Number>
bool parse_all(const std::string& text, Number& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

std::map<TokenId, double> read_logit_bias(const YamlValue& value) {
  std::map<TokenId, double> biases;
  if (value.kind == YamlValue::Kind::kNull) return biases;
  if (value.kind != YamlValue::Kind::kMap) {
    throw Error("logit_bias", text_of("is ", shown(value), ", expected a map from token ids to numbers"), "{198: -5}");
  }
  for (std::size_t i = 0; i < value.keys.size(); ++i) {
    TokenId token = 0;
    if (!parse_all(value.keys[i], token) || token < 0)
      throw Error("logit_bias", text_of(shown(value.keys[i]), " is not a token id"), "{198: -5}");
    double bias = 0;
    if (!parse_all(value.items[i].scalar, bias) || !(std::abs(bias) <= 100)) {
      throw Error("logit_bias",
                  text_of("of token ", token, " is ", shown(value.items[i]), ", expected a number from -100 to 100"));
    }
    if (!biases.emplace(token, bias).second) throw Error("logit_bias", text_of("has token ", token, " twice"));
  }
  return biases;
}

std::vector<TokenId> token_ids(std::span<const std::int64_t> values) {
  std::vector<TokenId> ids;
  for (const std::int64_t value : values) ids.push_back(static_cast<TokenId>(value));
  return ids;
}

Json list_or_null(std::span<const TokenId> ids) { return ids.empty() ? Json(nullptr) : Json(ids); }

}  // namespace

SamplingParams SamplingKeys::params(std::int64_t max_tokens, std::vector<TokenId> stop_token_ids) const {
  return {.temperature = temperature,
          .top_p = top_p,
          .min_p = min_p,
          .top_k = top_k,
          .repetition_penalty = repetition_penalty,
          .frequency_penalty = frequency_penalty,
          .presence_penalty = presence_penalty,
          .logit_bias = read_logit_bias(logit_bias),
          .allowed_token_ids = token_ids(allowed_token_ids),
          .banned_token_ids = token_ids(banned_token_ids),
          .max_tokens = max_tokens,
          .stop_token_ids = std::move(stop_token_ids)};
}

Json logit_adjustments(const SamplingParams& sampling) {
  Json biases = nullptr;
  for (const auto& [token, bias] : sampling.logit_bias) biases[std::to_string(token)] = bias;
  const auto penalty = [](double value, double none) { return value == none ? Json(nullptr) : Json(value); };
  return {{"repetition_penalty", penalty(sampling.repetition_penalty, 1)},
          {"frequency_penalty", penalty(sampling.frequency_penalty, 0)},
          {"presence_penalty", penalty(sampling.presence_penalty, 0)},
          {"logit_bias", std::move(biases)},
          {"allowed_token_ids", list_or_null(sampling.allowed_token_ids)},
          {"banned_token_ids", list_or_null(sampling.banned_token_ids)}};
}

}  // namespace hone
