// The parameters that all requests for completions share, brought into the engine's terms.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "serve/request_parameters.h"
#include "serve/structured_output.h"

namespace hone {

// Maximum completions of one request, maximum stop strings and stop tokens, and maximum bytes of a stop string, which
// every new token is compared with.
inline constexpr std::int64_t kMaxChoices = 128;
inline constexpr std::size_t kMaxStops = 16;
inline constexpr std::size_t kMaxStopBytes = 4096;
inline constexpr std::size_t kMaxBadWords = 64;
inline constexpr std::size_t kMaxBadWordBytes = 256;
// Maximum alternatives listed for each token.
inline constexpr std::int64_t kMaxTopLogprobs = 20;

struct GenerationRequest {
  std::string model;  // empty: the body has none
  // max_tokens is valid only if has_max_tokens, seed only if has_seed; the server chooses the others.
  SamplingParams sampling;
  bool has_max_tokens = false;
  bool has_seed = false;
  std::int64_t n = 1;  // completions of a prompt
  bool stream = false;
  bool include_usage = false;          // a last event with the counts of tokens
  bool logprobs = false;               // the log-probability of each sampled token
  std::vector<std::string> bad_words;  // texts that the completion never has
  std::optional<RequestedGrammar> grammar = std::nullopt;
  bool ignore_eos = false;  // only stop_token_ids, stop and max_tokens end a completion
};

// The following read a group of parameters each. They throw RequestError that names the parameter.
//
// model, n, stream, stream_options and all that determines which tokens are drawn, structured output included.
void read_generation(RequestParameters& parameters, GenerationRequest& request);
// temperature, top_p, top_k and min_p.
void read_distribution(RequestParameters& parameters, SamplingParams& sampling);
// Stop strings, under a name that differs between APIs.
void read_stop(RequestParameters& parameters, const char* key, SamplingParams& sampling);
// RequestParameters of vLLM and OpenAI that are accepted only where they change nothing, and those that never change a
// result.
void read_neutral(RequestParameters& parameters);

}  // namespace hone
