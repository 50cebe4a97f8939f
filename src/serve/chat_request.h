// The body of POST /v1/chat/completions: read, checked, and brought into the engine's terms.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "core/json.h"
#include "serve/generation_request.h"

namespace hone {

struct ChatRequest : GenerationRequest {
  std::shared_ptr<const Json> messages;   // an array, not empty, in the form that chat templates read
  std::shared_ptr<const Json> variables;  // an object: chat_template_kwargs, and tools
  std::optional<DemandedCall> demanded_call = std::nullopt;
  bool forbids_calls = false;  // tool_choice is "none": the prompt has the tools, and calls in the answer are text
  bool token_ids = false;      // the answer lists the tokens of the prompt and of its choices
  bool tokens_as_ids = false;  // logprobs name tokens "token_id:ID"
  // Returns true if calls of tools are to be found in the answer.
  [[nodiscard]] bool has_tools() const;
};

// Parses a body. `defaults` has the sampling parameters of a request that does not state them. Throws RequestError that
// names the parameter if the body is not valid JSON, if a value has a wrong type or is out of range, and if a parameter
// is unknown or would change the result in a way that hone does not support. Nothing is ignored except what cannot
// change a completion, such as user and metadata.
[[nodiscard]] ChatRequest parse_chat_request(std::string_view body, const SamplingParams& defaults);

}  // namespace hone
