// The body of POST /v1/messages, Anthropic's API, brought into the form of a chat request.
// Source: https://docs.anthropic.com/en/api/messages
#pragma once

#include <string_view>

#include "serve/chat_request.h"

namespace hone {

// Parses a body as parse_chat_request() does.
[[nodiscard]] ChatRequest parse_messages_request(std::string_view body, const SamplingParams& defaults);

}  // namespace hone
