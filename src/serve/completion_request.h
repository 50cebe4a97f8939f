// The body of POST /v1/completions, read and checked.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "serve/generation_request.h"

namespace hone {

// Maximum completions of all prompts of one request.
inline constexpr std::size_t kMaxPrompts = 2048;

struct CompletionRequest : GenerationRequest {
  std::vector<std::variant<std::string, std::vector<TokenId>>> prompts;  // at least one
  bool echo = false;                                                     // texts begin with their prompts
  bool echoes_logprobs = false;      // prompt_logprobs serve the echoed prompts only
  bool add_special_tokens = true;    // to prompts that are texts
  bool token_ids = false;            // choices list them, and their prompts'
  bool tokens_as_ids = false;        // logprobs name tokens "token_id:ID"
  std::vector<std::uint64_t> seeds;  // [prompts x n], or empty
};

// Parses a body as parse_chat_request() does.
[[nodiscard]] CompletionRequest parse_completion_request(std::string_view body, const SamplingParams& defaults);

}  // namespace hone
