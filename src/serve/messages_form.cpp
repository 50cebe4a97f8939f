#include "serve/messages_form.h"

#include <algorithm>

#include "core/json_value.h"
#include "serve/request_error.h"
#include "serve/served_model.h"

namespace hone {
namespace {

std::string messages_event(const Json& event) {
  return event_text(json_text(event), event["type"].get_ref<const std::string&>());
}

Json tool_use(const ToolCall& call) {
  return {{"type", "tool_use"}, {"id", new_identifier("toolu_")}, {"name", call.name}, {"input", Json::object()}};
}

}  // namespace

std::string messages_error_body(std::string_view message, int status) {
  const Json plain = Json::parse(error_body(message, {}, status));
  return json_text(
      {{"type", "error"}, {"error", {{"type", plain["error"]["type"]}, {"message", plain["error"]["message"]}}}});
}

Json MessagesForm::stop_of(const AnswerPart& choice) const {
  if (!choice.calls.empty()) return {{"stop_reason", "tool_use"}, {"stop_sequence", nullptr}};
  if (choice.finish_reason == FinishReason::kLength) return {{"stop_reason", "max_tokens"}, {"stop_sequence", nullptr}};
  const bool stop_token = !choice.tokens.empty() && std::ranges::find(sampling_.stop_token_ids, choice.tokens.back()) !=
                                                        sampling_.stop_token_ids.end();
  if (!stop_token) {
    // The text ends before the first stop string that the tokens contain.
    const std::string text = head_.tokenizer->decode(choice.tokens, true);
    const auto first = std::ranges::min_element(
        sampling_.stop, {}, [&](const std::string& stop) { return std::min(text.find(stop), text.size()); });
    if (first != sampling_.stop.end()) return {{"stop_reason", "stop_sequence"}, {"stop_sequence", *first}};
  }
  return {{"stop_reason", "end_turn"}, {"stop_sequence", nullptr}};
}

Json MessagesForm::message(Json content, const Json& stop, std::int64_t output_tokens) const {
  return {{"id", head_.id},
          {"type", "message"},
          {"role", "assistant"},
          {"model", head_.model},
          {"content", std::move(content)},
          {"stop_reason", stop["stop_reason"]},
          {"stop_sequence", stop["stop_sequence"]},
          {"usage", {{"input_tokens", head_.prompt_tokens}, {"output_tokens", output_tokens}}}};
}

std::string MessagesForm::whole(const std::vector<AnswerPart>& choices) const {
  const AnswerPart& choice = choices[0];
  Json content = Json::array();
  if (!choice.reasoning.empty())
    content.push_back({{"type", "thinking"}, {"thinking", choice.reasoning}, {"signature", ""}});
  if (!choice.content.empty()) content.push_back({{"type", "text"}, {"text", choice.content}});
  for (const ToolCall& call : choice.calls) {
    content.push_back(tool_use(call));
    content.back()["input"] = Json::parse(call.arguments);
  }
  return json_text(message(std::move(content), stop_of(choice), completion_tokens_of(choices)));
}

std::string MessagesForm::begin() {
  const Json none{{"stop_reason", nullptr}, {"stop_sequence", nullptr}};
  return messages_event({{"type", "message_start"}, {"message", message(Json::array(), none, 0)}});
}

std::string MessagesForm::change_to(Block block) {
  if (block == open_) return {};
  std::string text;
  if (open_ != Block::kNone) text = messages_event({{"type", "content_block_stop"}, {"index", block_}});
  open_ = block;
  if (block == Block::kNone) return text;
  ++block_;
  const Json empty = block == Block::kText ? Json{{"type", "text"}, {"text", ""}}
                                           : Json{{"type", "thinking"}, {"thinking", ""}, {"signature", ""}};
  return text + messages_event({{"type", "content_block_start"}, {"index", block_}, {"content_block", empty}});
}

std::string MessagesForm::delta(const Json& delta) const {
  return messages_event({{"type", "content_block_delta"}, {"index", block_}, {"delta", delta}});
}

std::string MessagesForm::part(std::size_t, bool, const AnswerPart& part) {
  std::string text;
  if (!part.reasoning.empty()) {
    text += change_to(Block::kThinking);
    text += delta({{"type", "thinking_delta"}, {"thinking", part.reasoning}});
  }
  if (!part.content.empty()) {
    text += change_to(Block::kText);
    text += delta({{"type", "text_delta"}, {"text", part.content}});
  }
  for (const ToolCall& call : part.calls) {
    text += change_to(Block::kNone);
    ++block_;
    text += messages_event({{"type", "content_block_start"}, {"index", block_}, {"content_block", tool_use(call)}});
    text += delta({{"type", "input_json_delta"}, {"partial_json", call.arguments}});
    text += messages_event({{"type", "content_block_stop"}, {"index", block_}});
  }
  return text;
}

std::string MessagesForm::end(const std::vector<AnswerPart>& choices) {
  return change_to(Block::kNone) +
         messages_event({{"type", "message_delta"},
                         {"delta", stop_of(choices[0])},
                         {"usage", {{"output_tokens", completion_tokens_of(choices)}}}}) +
         messages_event({{"type", "message_stop"}});
}

std::string MessagesForm::failure_body(int status, std::string_view message) const {
  return messages_error_body(message, status);
}

std::string MessagesForm::failure_event(int status, std::string_view message) const {
  return event_text(messages_error_body(message, status), "error");
}

}  // namespace hone
