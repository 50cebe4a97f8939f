#include "serve/generation_request.h"

#include <charconv>
#include <limits>
#include <vector>

#include "core/json_value.h"
#include "serve/request_error.h"

namespace hone {
namespace {

constexpr std::int64_t kMostCount = std::numeric_limits<std::int32_t>::max();

void check_count(const std::string& param, std::size_t count) {
  if (count > kMaxStops) throw RequestError(param, text_of("has ", count, " values"), text_of("at most ", kMaxStops));
}

// Reads an array of token ids. Returns false if it is absent.
bool read_tokens(RequestParameters& parameters, const char* key, std::vector<TokenId>& result) {
  const Json& ids = parameters.value(key);
  if (ids.is_null()) return false;
  if (!ids.is_array()) RequestParameters::refuse(key, ids, "an array of token ids");
  result.clear();
  for (const Json& id : ids)
    result.push_back(
        static_cast<TokenId>(RequestParameters::checked_integer(id, key, 0, std::numeric_limits<TokenId>::max())));
  return true;
}

// An object from token ids, as texts, to biases.
void read_logit_bias(RequestParameters& parameters, SamplingParams& sampling) {
  const Json& biases = parameters.value("logit_bias");
  if (biases.is_null()) return;
  if (!biases.is_object()) RequestParameters::refuse("logit_bias", biases, "an object");
  for (const auto& [key, bias] : biases.items()) {
    TokenId token = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (error != std::errc() || end != key.data() + key.size() || token < 0)
      throw RequestError("logit_bias", "has a key that is not a token id");
    if (!bias.is_number()) RequestParameters::refuse("logit_bias", bias, "numbers");
    sampling.logit_bias[token] = bias.get<double>();
  }
}

void read_penalties(RequestParameters& parameters, SamplingParams& sampling) {
  parameters.number("repetition_penalty", sampling.repetition_penalty, 0.01, 100.0);
  parameters.number("frequency_penalty", sampling.frequency_penalty, -2.0, 2.0);
  parameters.number("presence_penalty", sampling.presence_penalty, -2.0, 2.0);
  read_logit_bias(parameters, sampling);
  if (read_tokens(parameters, "allowed_token_ids", sampling.allowed_token_ids) && sampling.allowed_token_ids.empty())
    throw RequestError("allowed_token_ids", "is empty", "leave it out");
}

void read_bad_words(RequestParameters& parameters, GenerationRequest& request) {
  const Json& words = parameters.value("bad_words");
  if (words.is_null()) return;
  if (!words.is_array()) RequestParameters::refuse("bad_words", words, "an array of strings");
  if (words.size() > kMaxBadWords)
    throw RequestError("bad_words", text_of("has ", words.size(), " values"), text_of("at most ", kMaxBadWords));
  for (const Json& word : words) {
    if (!word.is_string()) RequestParameters::refuse("bad_words", word, "strings");
    const auto text = word.get<std::string>();
    if (text.empty() || text.size() > kMaxBadWordBytes)
      throw RequestError("bad_words", text_of("has a string of ", text.size(), " bytes"),
                         text_of("expected 1 to ", kMaxBadWordBytes));
    request.bad_words.push_back(text);
  }
}

// Log-probabilities of the prompt's tokens are in whole answers only, as in vLLM.
void read_prompt_logprobs(RequestParameters& parameters, GenerationRequest& request) {
  std::int64_t listed = 0;
  if (!parameters.integer("prompt_logprobs", listed, 0, kMaxTopLogprobs)) return;
  if (request.stream) throw RequestError("prompt_logprobs", "is given, but stream is true", "leave it out");
  request.sampling.prompt_logprobs = listed;
}

void read_stream(RequestParameters& parameters, GenerationRequest& request) {
  parameters.boolean("stream", request.stream);
  const Json& options = parameters.value("stream_options");
  if (options.is_null()) return;
  if (!options.is_object()) RequestParameters::refuse("stream_options", options, "an object");
  if (!request.stream) throw RequestError("stream_options", "is given, but stream is not true", "leave it out");
  RequestParameters inner(options, "stream_options.");
  inner.boolean("include_usage", request.include_usage);
  inner.only("continuous_usage_stats", false);
  inner.only("include_obfuscation", false);
  inner.refuse_others();
}

}  // namespace

void read_distribution(RequestParameters& parameters, SamplingParams& sampling) {
  parameters.number("temperature", sampling.temperature, 0.0, 100.0);
  if (parameters.number("top_p", sampling.top_p, 0.0, 1.0) && sampling.top_p <= 0.0)
    throw RequestError("top_p", "is 0", "expected above 0, at most 1");
  parameters.number("min_p", sampling.min_p, 0.0, 1.0);
  // -1 turns top_k off in vLLM, 0 does in hone.
  if (parameters.integer("top_k", sampling.top_k, -1, kMostCount) && sampling.top_k < 0) sampling.top_k = 0;
}

void read_stop(RequestParameters& parameters, const char* key, SamplingParams& sampling) {
  const Json& stop = parameters.value(key);
  if (stop.is_string())
    sampling.stop = {stop.get<std::string>()};
  else if (stop.is_array()) {
    sampling.stop.clear();
    for (const Json& one : stop) {
      if (!one.is_string()) RequestParameters::refuse(key, one, "strings");
      sampling.stop.push_back(one.get<std::string>());
    }
  } else if (!stop.is_null())
    RequestParameters::refuse(key, stop, "a string or an array of strings");
  for (const std::string& one : sampling.stop) {
    if (one.empty()) throw RequestError(key, "has an empty string", "leave it out");
    if (one.size() > kMaxStopBytes)
      throw RequestError(key, text_of("has a string of ", one.size(), " bytes"), text_of("at most ", kMaxStopBytes));
  }
  check_count(key, sampling.stop.size());
}

void read_generation(RequestParameters& parameters, GenerationRequest& request) {
  SamplingParams& sampling = request.sampling;
  parameters.text("model", request.model);
  parameters.integer("n", request.n, 1, kMaxChoices);
  read_stream(parameters, request);
  read_distribution(parameters, sampling);
  read_penalties(parameters, sampling);
  request.has_max_tokens = parameters.integer("max_tokens", sampling.max_tokens, 1, kMostCount);
  parameters.integer("min_tokens", sampling.min_tokens, 0, kMostCount);
  read_bad_words(parameters, request);
  read_prompt_logprobs(parameters, request);
  std::int64_t seed = 0;
  request.has_seed = parameters.integer("seed", seed, std::numeric_limits<std::int64_t>::min(),
                                        std::numeric_limits<std::int64_t>::max());
  if (request.has_seed) sampling.seed = static_cast<std::uint64_t>(seed);
  parameters.boolean("ignore_eos", request.ignore_eos);
  read_stop(parameters, "stop", sampling);
  if (read_tokens(parameters, "stop_token_ids", sampling.stop_token_ids))
    check_count("stop_token_ids", sampling.stop_token_ids.size());
  read_structured_output(parameters, request);
}

void read_neutral(RequestParameters& parameters) {
  for (const char* key : {"add_generation_prompt", "skip_special_tokens", "spaces_between_special_tokens",
                          "include_reasoning", "parallel_tool_calls"})
    parameters.only(key, true);
  for (const char* key : {"use_beam_search", "include_stop_str_in_output", "continue_final_message"})
    parameters.only(key, false);
  parameters.only("priority", 0);
  parameters.only("best_of", 1);
  parameters.only("length_penalty", 1);
  parameters.only("modalities", Json{"text"});
  for (const char* key :
       {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "request_id"})
    parameters.ignore(key);
}

}  // namespace hone
