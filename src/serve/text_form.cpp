#include "serve/text_form.h"

#include <string_view>

#include "core/error.h"
#include "core/json_value.h"

namespace hone {

Json TextForm::body(Json choices) const {
  return {{"id", head_.id},
          {"object", "text_completion"},
          {"created", head_.created},
          {"model", head_.model},
          {"choices", std::move(choices)}};
}

std::string TextForm::name_of(TokenId token) const {
  return head_.tokens_as_ids ? text_of("token_id:", token) : token_text(*head_.tokenizer, token);
}

void TextForm::add_token(Json& logprobs, TokenId token, std::optional<float> logp,
                         const std::vector<TokenLogprob>* tops, std::size_t offset) const {
  const std::string name = name_of(token);
  logprobs["tokens"].push_back(name);
  logprobs["text_offset"].push_back(offset);
  Json number = nullptr;
  Json listed = nullptr;
  if (logp) {
    number = finite_logp(*logp);
    listed = {{name, number}};
    if (tops != nullptr)
      for (const auto& [other, value] : *tops) listed[name_of(other)] = finite_logp(value);
  }
  logprobs["token_logprobs"].push_back(std::move(number));
  logprobs["top_logprobs"].push_back(std::move(listed));
}

void TextForm::add_prompt(Json& logprobs, const EchoedPrompt& prompt, const AnswerPart& part) const {
  std::size_t offset = 0;
  for (std::size_t i = 0; i < prompt.tokens.size(); ++i) {
    const bool has_logp = i > 0 && i <= part.prompt_logps.size();
    add_token(logprobs, prompt.tokens[i], has_logp ? std::optional(part.prompt_logps[i - 1]) : std::nullopt,
              has_logp && !part.prompt_top_logprobs.empty() ? &part.prompt_top_logprobs[i - 1] : nullptr, offset);
    const std::string_view bytes = head_.tokenizer->token_bytes(prompt.tokens[i]);
    if (std::string_view(prompt.text).substr(offset).starts_with(bytes)) offset += bytes.size();
  }
}

Json TextForm::choice(std::size_t index, const AnswerPart& part, bool first, std::size_t& offset) const {
  const EchoedPrompt* begin = first && !begins_.empty() ? &begins_[index] : nullptr;
  if (begin != nullptr) offset = begin->text.size();
  Json logprobs = nullptr;
  if (head_.logprobs) {
    logprobs = {{"tokens", Json::array()},
                {"token_logprobs", Json::array()},
                {"top_logprobs", Json::array()},
                {"text_offset", Json::array()}};
    if (begin != nullptr) add_prompt(logprobs, *begin, part);
    for (std::size_t i = 0; i < part.tokens.size(); ++i) {
      add_token(logprobs, part.tokens[i], part.logps[i], part.top_logprobs.empty() ? nullptr : &part.top_logprobs[i],
                offset);
      offset += head_.tokenizer->token_bytes(part.tokens[i]).size();
    }
  }
  Json finish = nullptr;
  if (part.finish_reason != FinishReason::kNone) finish = finish_text(part);
  Json result{{"index", index},
              {"text", begin != nullptr ? begin->text + part.content : part.content},
              {"logprobs", std::move(logprobs)},
              {"finish_reason", std::move(finish)}};
  if (head_.token_ids) {
    result["prompt_token_ids"] = head_.prompts[index / head_.choices_per_prompt];
    result["token_ids"] = part.tokens;
  }
  if (head_.prompt_logprobs)
    result["prompt_logprobs"] =
        prompt_logprobs_of(*head_.tokenizer, head_.prompts[index / head_.choices_per_prompt], part);
  return result;
}

std::string TextForm::whole(const std::vector<AnswerPart>& choices) const {
  Json list = Json::array();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    std::size_t offset = 0;
    list.push_back(choice(i, choices[i], true, offset));
  }
  Json all = body(std::move(list));
  all["usage"] = usage_of(head_.prompt_tokens, completion_tokens_of(choices));
  return json_text(all);
}

std::string TextForm::part(std::size_t index, bool first, const AnswerPart& part) {
  if (offsets_.size() <= index) offsets_.resize(index + 1);
  const bool empty = part.content.empty() && (!first || begins_.empty() || begins_[index].text.empty());
  if (empty && part.finish_reason == FinishReason::kNone && !head_.logprobs && !head_.token_ids) return {};
  Json event = body(Json::array({choice(index, part, first, offsets_[index])}));
  if (head_.include_usage) event["usage"] = nullptr;
  return event_text(json_text(event));
}

std::string TextForm::end(const std::vector<AnswerPart>& choices) {
  std::string text;
  if (head_.include_usage) {
    Json event = body(Json::array());
    event["usage"] = usage_of(head_.prompt_tokens, completion_tokens_of(choices));
    text = event_text(json_text(event));
  }
  return text + event_text("[DONE]");
}

}  // namespace hone
