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

Json prompt_logprobs_of(const Tokenizer& tokenizer, const std::vector<TokenId>& prompt, const AnswerPart& part) {
  Json list = Json::array();
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    if (i == 0 || i > part.prompt_logps.size()) {
      list.push_back(nullptr);
      continue;
    }
    const auto entry = [&](TokenId token, float logp, const Json& rank) -> Json {
      return {{"logprob", finite_logp(logp)}, {"rank", rank}, {"decoded_token", token_text(tokenizer, token)}};
    };
    Json tokens = Json::object();
    const std::size_t listed = part.prompt_top_logprobs.empty() ? 0 : part.prompt_top_logprobs[i - 1].size();
    // The rank of a token that is not listed is at least this; clients sort by it (TRL's).
    const Json next = listed > 0 ? Json(listed + 1) : Json();
    tokens[std::to_string(prompt[i])] = entry(prompt[i], part.prompt_logps[i - 1], next);
    if (listed > 0) {
      const auto& tops = part.prompt_top_logprobs[i - 1];
      for (std::size_t k = 0; k < tops.size(); ++k)
        tokens[std::to_string(tops[k].token)] = entry(tops[k].token, tops[k].logp, k + 1);
    }
    list.push_back(std::move(tokens));
  }
  return list;
}

double finite_logp(float logp) { return std::max(static_cast<double>(logp), -9999.0); }

}  // namespace hone
