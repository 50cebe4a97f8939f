// The body of POST /v1/responses, brought into the form of a chat request.
// Source: https://platform.openai.com/docs/api-reference/responses
#pragma once

#include <memory>
#include <string_view>

#include "serve/chat_request.h"

namespace hone {

struct ResponsesRequest : ChatRequest {
  std::shared_ptr<const Json> echoed;  // the parameters that the response repeats
};

// Parses a body as parse_chat_request() does. There is no memory of earlier responses: previous_response_id is refused,
// and `store` has no effect.
[[nodiscard]] ResponsesRequest parse_responses_request(std::string_view body, const SamplingParams& defaults);

}  // namespace hone
