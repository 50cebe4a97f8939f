// The fields that all events and bodies of an answer state, and texts that several APIs share.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "serve/answer.h"
#include "text/tokenizer.h"

namespace hone {

struct AnswerHead {
  std::string id;
  std::int64_t created = 0;  // seconds since 1970
  std::string model;
  std::int64_t prompt_tokens = 0;
  bool include_usage = false;  // a last event with the counts of tokens
  bool logprobs = false;
  const Tokenizer* tokenizer = nullptr;
  bool token_ids = false;                       // choices list their tokens and their prompt's
  bool tokens_as_ids = false;                   // log-probabilities name tokens "token_id:ID"
  bool prompt_logprobs = false;                 // answers have the log-probabilities of their prompts
  std::vector<std::vector<TokenId>> prompts{};  // [prompts] if token_ids or prompt_logprobs
  std::size_t choices_per_prompt = 1;
};

// Returns JSON text. Bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string json_text(const Json& json);
// {"prompt_tokens", "completion_tokens", "total_tokens"}.
[[nodiscard]] Json usage_of(std::int64_t prompt_tokens, std::int64_t completion_tokens);
[[nodiscard]] std::int64_t completion_tokens_of(const std::vector<AnswerPart>& choices);
// A finish reason as OpenAI names it.
[[nodiscard]] std::string finish_text(const AnswerPart& part);
// vLLM's list of the log-probabilities of a prompt: null for its first token, for each other an object from token ids
// to
// {"logprob", "rank", "decoded_token"} with the token and the most probable ones in its place. The rank of a token that
// is not one of these is null.
[[nodiscard]] Json prompt_logprobs_of(const Tokenizer& tokenizer, const std::vector<TokenId>& prompt,
                                      const AnswerPart& part);
// The text of a token and its log-probability as JSON can state it.
[[nodiscard]] std::string token_text(const Tokenizer& tokenizer, TokenId token);
[[nodiscard]] double finite_logp(float logp);

}  // namespace hone
