// The body of POST /v1/chat/completions: read, checked, and brought into the engine's terms.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/json.h"
#include "engine/request.h"

namespace hone {

// Maximum completions of one request, and maximum stop strings and stop tokens.
inline constexpr std::int64_t kMaxChoices = 128;
inline constexpr std::size_t kMaxStops = 16;

struct ChatRequest {
  std::string model;                      // empty: the body has none
  std::shared_ptr<const Json> messages;   // an array, not empty, in the form that chat templates read
  std::shared_ptr<const Json> variables;  // an object: chat_template_kwargs, and tools if the model may call them
  // max_tokens is valid only if has_max_tokens, seed only if has_seed; the server chooses the others.
  SamplingParams sampling;
  bool has_max_tokens = false;
  bool has_seed = false;
  std::int64_t n = 1;  // completions
  bool stream = false;
  bool include_usage = false;  // a last event with the counts of tokens
  bool logprobs = false;       // the log-probability of each sampled token
  bool ignore_eos = false;     // only stop_token_ids, stop and max_tokens end a completion
};

// Parses a body. `defaults` has the sampling parameters of a request that does not state them. Throws RequestError that
// names the parameter if the body is not valid JSON, if a value has a wrong type or is out of range, and if a parameter
// is unknown or would change the result in a way that hone does not support. Nothing is ignored except what cannot
// change a completion (user, metadata, store, service_tier).
[[nodiscard]] ChatRequest parse_chat_request(std::string_view body, const SamplingParams& defaults);

}  // namespace hone
