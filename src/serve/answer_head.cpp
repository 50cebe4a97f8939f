#include "serve/answer_head.h"

#include <algorithm>

#include "core/json_value.h"

namespace hone {

std::string json_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json usage_of(std::int64_t prompt_tokens, std::int64_t completion_tokens) {
  return {{"prompt_tokens", prompt_tokens},
          {"completion_tokens", completion_tokens},
          {"total_tokens", prompt_tokens + completion_tokens}};
}

std::int64_t completion_tokens_of(const std::vector<AnswerPart>& choices) {
  std::int64_t count = 0;
  for (const AnswerPart& choice : choices) count += std::ssize(choice.tokens);
  return count;
}

std::string finish_text(const AnswerPart& part) {
  if (!part.calls.empty()) return "tool_calls";
  return std::string(name_of(part.finish_reason));
}

std::string token_text(const Tokenizer& tokenizer, TokenId token) { return std::string(tokenizer.token_bytes(token)); }

double finite_logp(float logp) { return std::max(static_cast<double>(logp), -9999.0); }

}  // namespace hone
