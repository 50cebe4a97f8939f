#include "serve/responses_form.h"

#include <utility>

#include "core/json_value.h"
#include "serve/request_error.h"
#include "serve/served_model.h"

namespace hone {
namespace {

Json text_part(bool reasoning, const std::string& text) {
  if (reasoning) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
}

// An item with the parts of its content.
Json item_json(bool reasoning, const std::string& id, std::string_view status, Json content) {
  if (reasoning) {
    return {{"id", id},
            {"type", "reasoning"},
            {"summary", Json::array()},
            {"content", std::move(content)},
            {"status", status}};
  }
  return {{"id", id}, {"type", "message"}, {"role", "assistant"}, {"status", status}, {"content", std::move(content)}};
}

Json call_json(const ToolCall& call) {
  return {{"id", new_identifier("fc_")}, {"type", "function_call"},     {"call_id", new_identifier("call_")},
          {"name", call.name},           {"arguments", call.arguments}, {"status", "completed"}};
}

std::string_view status_of(const AnswerPart& choice) {
  return choice.finish_reason == FinishReason::kLength ? "incomplete" : "completed";
}

}  // namespace

ResponsesForm::ResponsesForm(AnswerHead head, std::shared_ptr<const Json> echoed)
    : head_(std::move(head)), echoed_(std::move(echoed)), output_(std::make_unique<Json>(Json::array())) {}

ResponsesForm::~ResponsesForm() = default;

Json ResponsesForm::response(std::string_view status, Json output, const AnswerPart* choice) const {
  Json body{{"id", head_.id},
            {"object", "response"},
            {"created_at", head_.created},
            {"status", status},
            {"error", nullptr},
            {"incomplete_details", nullptr},
            {"model", head_.model},
            {"output", std::move(output)},
            {"previous_response_id", nullptr}};
  body.update(*echoed_);
  if (status == "incomplete") body["incomplete_details"] = {{"reason", "max_output_tokens"}};
  body["usage"] = nullptr;
  if (choice != nullptr) {
    const auto tokens = std::ssize(choice->tokens);
    body["usage"] = {{"input_tokens", head_.prompt_tokens},
                     {"input_tokens_details", {{"cached_tokens", 0}}},
                     {"output_tokens", tokens},
                     {"output_tokens_details", {{"reasoning_tokens", 0}}},
                     {"total_tokens", head_.prompt_tokens + tokens}};
  }
  return body;
}

std::string ResponsesForm::whole(const std::vector<AnswerPart>& choices) const {
  const AnswerPart& choice = choices[0];
  Json output = Json::array();
  if (!choice.reasoning.empty())
    output.push_back(
        item_json(true, new_identifier("rs_"), "completed", Json::array({text_part(true, choice.reasoning)})));
  if (!choice.content.empty() || output.empty() || choice.calls.empty())
    output.push_back(
        item_json(false, new_identifier("msg_"), status_of(choice), Json::array({text_part(false, choice.content)})));
  for (const ToolCall& call : choice.calls) output.push_back(call_json(call));
  return json_text(response(status_of(choice), std::move(output), &choice));
}

std::string ResponsesForm::event(std::string_view type, const Json& fields) {
  Json all{{"type", type}, {"sequence_number", number_++}};
  all.update(fields);
  return event_text(json_text(all), type);
}

std::string ResponsesForm::begin() {
  const Json body = response("in_progress", Json::array(), nullptr);
  std::string text = event("response.created", {{"response", body}});
  return text += event("response.in_progress", {{"response", body}});
}

std::string ResponsesForm::change_to(Item item) {
  if (item == open_) return {};
  std::string text;
  const bool reasoned = open_ == Item::kReasoning;
  const std::string kind = reasoned ? "response.reasoning_text" : "response.output_text";
  const auto place = [&] {
    return Json{{"item_id", open_id_}, {"output_index", output_->size()}, {"content_index", 0}};
  };
  const auto placed = [&](const Json& more) {
    Json fields = place();
    fields.update(more);
    return fields;
  };
  if (open_ != Item::kNone) {
    const Json part = text_part(reasoned, open_text_);
    text += event(kind + ".done", placed(reasoned ? Json{{"text", open_text_}}
                                                  : Json{{"text", open_text_}, {"logprobs", Json::array()}}));
    text += event("response.content_part.done", placed({{"part", part}}));
    Json ended = item_json(reasoned, open_id_, "completed", Json::array({part}));
    text += event("response.output_item.done", {{"output_index", output_->size()}, {"item", ended}});
    output_->push_back(std::move(ended));
  }
  open_ = item;
  open_text_.clear();
  if (item == Item::kNone) return text;
  const bool reasons = item == Item::kReasoning;
  open_id_ = new_identifier(reasons ? "rs_" : "msg_");
  text += event("response.output_item.added", {{"output_index", output_->size()},
                                               {"item", item_json(reasons, open_id_, "in_progress", Json::array())}});
  return text + event("response.content_part.added", placed({{"part", text_part(reasons, "")}}));
}

std::string ResponsesForm::text_delta(const std::string& text) {
  open_text_ += text;
  Json fields{{"item_id", open_id_}, {"output_index", output_->size()}, {"content_index", 0}, {"delta", text}};
  if (open_ == Item::kReasoning) return event("response.reasoning_text.delta", fields);
  fields["logprobs"] = Json::array();
  return event("response.output_text.delta", fields);
}

std::string ResponsesForm::part(std::size_t, bool, const AnswerPart& part) {
  std::string text;
  if (!part.reasoning.empty()) {
    text += change_to(Item::kReasoning);
    text += text_delta(part.reasoning);
  }
  if (!part.content.empty()) {
    text += change_to(Item::kMessage);
    text += text_delta(part.content);
  }
  for (const ToolCall& call : part.calls) {
    text += change_to(Item::kNone);
    const Json item = call_json(call);
    Json begun = item;
    begun["arguments"] = "";
    begun["status"] = "in_progress";
    const Json place{{"item_id", item["id"]}, {"output_index", output_->size()}};
    const auto placed = [&](const Json& more) {
      Json fields = place;
      fields.update(more);
      return fields;
    };
    text += event("response.output_item.added", {{"output_index", output_->size()}, {"item", begun}});
    text += event("response.function_call_arguments.delta", placed({{"delta", call.arguments}}));
    text +=
        event("response.function_call_arguments.done", placed({{"name", call.name}, {"arguments", call.arguments}}));
    text += event("response.output_item.done", {{"output_index", output_->size()}, {"item", item}});
    output_->push_back(item);
  }
  return text;
}

std::string ResponsesForm::end(const std::vector<AnswerPart>& choices) {
  const AnswerPart& choice = choices[0];
  std::string text;
  if (open_ != Item::kMessage && choice.calls.empty()) text = change_to(Item::kMessage);  // an answer has a message
  text += change_to(Item::kNone);
  const bool cut = choice.finish_reason == FinishReason::kLength;
  if (cut) output_->back()["status"] = "incomplete";
  return text + event(cut ? "response.incomplete" : "response.completed",
                      {{"response", response(status_of(choice), *output_, &choice)}});
}

std::string ResponsesForm::failure_event(int status, std::string_view message) const {
  return event_text(json_text({{"type", "error"},
                               {"sequence_number", number_},
                               {"code", std::to_string(status)},
                               {"message", message},
                               {"param", nullptr}}),
                    "error");
}

}  // namespace hone
