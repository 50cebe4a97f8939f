#include "serve/chat_form.h"

#include "core/json_value.h"
#include "serve/served_model.h"

namespace hone {
namespace {

Json calls_json(const std::vector<ToolCall>& calls, bool streamed) {
  Json list = Json::array();
  for (const ToolCall& call : calls) {
    Json one{{"id", new_identifier("call_")},
             {"type", "function"},
             {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
    if (streamed) one["index"] = list.size();
    list.push_back(std::move(one));
  }
  return list;
}

// The reasoning has two names: reasoning in newer clients, reasoning_content in older ones.
void set_reasoning(Json& message, const std::string& reasoning) {
  message["reasoning"] = reasoning;
  message["reasoning_content"] = reasoning;
}

}  // namespace

Json ChatForm::logprobs_of(const AnswerPart& part) const {
  if (!head_.logprobs) return nullptr;
  const auto entry = [&](TokenId token, float logp) -> Json {
    const std::string text = token_text(*head_.tokenizer, token);
    const std::string name = head_.tokens_as_ids ? text_of("token_id:", token) : text;
    Json bytes = Json::array();
    for (const char byte : text) bytes.push_back(static_cast<unsigned char>(byte));
    return {{"token", name}, {"logprob", finite_logp(logp)}, {"bytes", std::move(bytes)}};
  };
  Json content = Json::array();
  for (std::size_t i = 0; i < part.tokens.size(); ++i) {
    Json one = entry(part.tokens[i], part.logps[i]);
    one["top_logprobs"] = Json::array();
    if (!part.top_logprobs.empty())
      for (const auto& [token, logp] : part.top_logprobs[i]) one["top_logprobs"].push_back(entry(token, logp));
    content.push_back(std::move(one));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

std::string ChatForm::whole(const std::vector<AnswerPart>& choices) const {
  Json list = Json::array();
  for (const AnswerPart& choice : choices) {
    Json message{{"role", "assistant"}, {"content", choice.content}, {"refusal", nullptr}};
    if (choice.content.empty() && !choice.calls.empty()) message["content"] = nullptr;
    if (!choice.reasoning.empty()) set_reasoning(message, choice.reasoning);
    if (!choice.calls.empty()) message["tool_calls"] = calls_json(choice.calls, false);
    Json one{{"index", list.size()},
             {"message", std::move(message)},
             {"logprobs", logprobs_of(choice)},
             {"finish_reason", finish_text(choice)}};
    if (head_.token_ids) one["token_ids"] = choice.tokens;
    list.push_back(std::move(one));
  }
  Json answer{{"id", head_.id},
              {"object", "chat.completion"},
              {"created", head_.created},
              {"model", head_.model},
              {"choices", std::move(list)},
              {"usage", usage_of(head_.prompt_tokens, completion_tokens_of(choices))}};
  if (head_.token_ids) answer["prompt_token_ids"] = head_.prompts[0];
  if (head_.prompt_logprobs)
    answer["prompt_logprobs"] = prompt_logprobs_of(*head_.tokenizer, head_.prompts[0], choices[0]);
  return json_text(answer);
}

std::string ChatForm::chunk(std::size_t index, const Json& delta, const AnswerPart& part,
                            const Json& finish_reason) const {
  Json choice{{"index", index},
              {"delta", delta},
              {"logprobs", part.tokens.empty() ? Json() : logprobs_of(part)},
              {"finish_reason", finish_reason}};
  if (head_.token_ids && !part.tokens.empty()) choice["token_ids"] = part.tokens;
  Json event{{"id", head_.id},
             {"object", "chat.completion.chunk"},
             {"created", head_.created},
             {"model", head_.model},
             {"choices", Json::array({std::move(choice)})}};
  if (head_.include_usage) event["usage"] = nullptr;
  if (head_.token_ids && delta.contains("role")) event["prompt_token_ids"] = head_.prompts[0];
  return event_text(json_text(event));
}

std::string ChatForm::part(std::size_t index, bool first, const AnswerPart& part) {
  std::string text;
  if (first) text += chunk(index, {{"role", "assistant"}, {"content", ""}}, {}, nullptr);
  Json delta = Json::object();
  if (!part.content.empty()) delta["content"] = part.content;
  if (!part.reasoning.empty()) set_reasoning(delta, part.reasoning);
  if (!part.calls.empty()) delta["tool_calls"] = calls_json(part.calls, true);
  if (!delta.empty() || ((head_.logprobs || head_.token_ids) && !part.tokens.empty()))
    text += chunk(index, delta, part, nullptr);
  if (part.finish_reason != FinishReason::kNone) text += chunk(index, Json::object(), {}, finish_text(part));
  return text;
}

std::string ChatForm::end(const std::vector<AnswerPart>& choices) {
  std::string text;
  if (head_.include_usage) {
    text = event_text(json_text({{"id", head_.id},
                                 {"object", "chat.completion.chunk"},
                                 {"created", head_.created},
                                 {"model", head_.model},
                                 {"choices", Json::array()},
                                 {"usage", usage_of(head_.prompt_tokens, completion_tokens_of(choices))}}));
  }
  return text + event_text("[DONE]");
}

}  // namespace hone
