#include "serve/text_form.h"

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

Json TextForm::choice(std::size_t index, const std::string& text, const AnswerPart& part, std::size_t& offset) const {
  Json logprobs = nullptr;
  if (head_.logprobs) {
    logprobs = {{"tokens", Json::array()},
                {"token_logprobs", Json::array()},
                {"top_logprobs", Json::array()},
                {"text_offset", Json::array()}};
    for (std::size_t i = 0; i < part.tokens.size(); ++i) {
      const std::string token = name_of(part.tokens[i]);
      logprobs["tokens"].push_back(token);
      logprobs["token_logprobs"].push_back(finite_logp(part.logps[i]));
      Json top{{token, finite_logp(part.logps[i])}};
      if (!part.top_logprobs.empty())
        for (const auto& [other, logp] : part.top_logprobs[i]) top[name_of(other)] = finite_logp(logp);
      logprobs["top_logprobs"].push_back(std::move(top));
      logprobs["text_offset"].push_back(offset);
      offset += head_.tokenizer->token_bytes(part.tokens[i]).size();
    }
  }
  Json finish = nullptr;
  if (part.finish_reason != FinishReason::kNone) finish = finish_text(part);
  Json result{
      {"index", index}, {"text", text}, {"logprobs", std::move(logprobs)}, {"finish_reason", std::move(finish)}};
  if (head_.token_ids) {
    result["prompt_token_ids"] = head_.prompts[index / head_.choices_per_prompt];
    result["token_ids"] = part.tokens;
  }
  return result;
}

std::string TextForm::whole(const std::vector<AnswerPart>& choices) const {
  Json list = Json::array();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const std::string begin = begins_.empty() ? "" : begins_[i];
    std::size_t offset = begin.size();
    list.push_back(choice(i, begin + choices[i].content, choices[i], offset));
  }
  Json all = body(std::move(list));
  all["usage"] = usage_of(head_.prompt_tokens, completion_tokens_of(choices));
  return json_text(all);
}

std::string TextForm::part(std::size_t index, bool first, const AnswerPart& part) {
  if (offsets_.size() <= index) offsets_.resize(index + 1);
  std::string text = part.content;
  if (first && !begins_.empty()) {
    text = begins_[index] + text;
    offsets_[index] = begins_[index].size();
  }
  if (text.empty() && part.finish_reason == FinishReason::kNone && !head_.logprobs && !head_.token_ids) return {};
  Json event = body(Json::array({choice(index, text, part, offsets_[index])}));
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
