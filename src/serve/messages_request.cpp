#include "serve/messages_request.h"

#include <limits>
#include <string>
#include <utility>

#include "core/json_value.h"
#include "serve/chat_messages.h"
#include "serve/request_error.h"

namespace hone {
namespace {

const std::string& block_text(const Json& block, const char* key, const std::string& where) {
  const auto found = block.find(key);
  if (found == block.end() || !found->is_string()) throw RequestError(where + "." + key, "is not a string");
  return found->get_ref<const std::string&>();
}

// Returns the text of a string or of text blocks, joined by line breaks.
std::string joined_blocks(const Json& content, const std::string& where) {
  if (content.is_null()) return {};
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) RequestParameters::refuse(where, content, "a string or an array of text blocks");
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string block = text_of(where, "[", i, "]");
    if (!content[i].is_object()) RequestParameters::refuse(block, content[i], "an object");
    if (const std::string& type = block_text(content[i], "type", block); type != "text")
      throw RequestError(block + ".type", text_of("\"", type, "\" is not supported"), "use \"text\"");
    if (i > 0) text += '\n';
    text += block_text(content[i], "text", block);
  }
  return text;
}

// Appends the messages that one message of this API stands for: results of tools come before the user's text.
void append_message(const Json& message, const std::string& where, Json& messages) {
  if (!message.is_object()) RequestParameters::refuse(where, message, "an object");
  const std::string& role = block_text(message, "role", where);
  if (role != "user" && role != "assistant")
    throw RequestError(where + ".role", text_of("is \"", role, "\""), "use user or assistant");
  const Json content = message.value("content", Json());
  if (!content.is_array()) {
    messages.push_back({{"role", role}, {"content", content}});
    return;
  }
  Json own{{"role", role}, {"content", Json::array()}};
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string place = text_of(where, ".content[", i, "]");
    const Json& block = content[i];
    if (!block.is_object()) RequestParameters::refuse(place, block, "an object");
    const std::string& type = block_text(block, "type", place);
    if (type == "text") {
      own["content"].push_back({{"type", "text"}, {"text", block_text(block, "text", place)}});
    } else if (type == "thinking" && role == "assistant") {
      own["reasoning_content"] = block_text(block, "thinking", place);
    } else if (type == "tool_use" && role == "assistant") {
      own["tool_calls"].push_back(
          {{"id", block_text(block, "id", place)},
           {"type", "function"},
           {"function",
            {{"name", block_text(block, "name", place)}, {"arguments", block.value("input", Json::object())}}}});
    } else if (type == "tool_result" && role == "user") {
      messages.push_back({{"role", "tool"},
                          {"tool_call_id", block_text(block, "tool_use_id", place)},
                          {"content", joined_blocks(block.value("content", Json()), place + ".content")}});
    } else {
      throw RequestError(place + ".type", text_of("\"", type, "\" is not supported here"));
    }
  }
  const bool has_calls = own.contains("tool_calls");
  if (own["content"].empty() && !has_calls && !messages.empty() && messages.back()["role"] == "tool") return;
  messages.push_back(std::move(own));
}

Json tools_of(RequestParameters& parameters, ChatRequest& request) {
  const Json& choice = parameters.value("tool_choice");
  if (!choice.is_null()) {
    if (!choice.is_object()) RequestParameters::refuse("tool_choice", choice, "an object");
    const std::string& type = block_text(choice, "type", "tool_choice");
    if (type == "any" || type == "tool") {
      const std::string tool = type == "tool" ? block_text(choice, "name", "tool_choice") : std::string();
      request.demanded_call = DemandedCall{tool, type == "tool" ? "tool_choice.name" : "tool_choice.type"};
    } else if (type != "auto" && type != "none") {
      throw RequestError("tool_choice.type", text_of("\"", type, "\" is not supported"), "use auto, any, tool or none");
    }
    if (type == "none") {
      parameters.ignore("tools");
      return Json::array();
    }
  }
  const Json& tools = parameters.value("tools");
  if (tools.is_null()) return Json::array();
  if (!tools.is_array()) RequestParameters::refuse("tools", tools, "an array");
  Json list = Json::array();
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const std::string place = text_of("tools[", i, "]");
    if (!tools[i].is_object()) RequestParameters::refuse(place, tools[i], "an object");
    list.push_back({{"type", "function"},
                    {"function",
                     {{"name", block_text(tools[i], "name", place)},
                      {"description", tools[i].value("description", Json(""))},
                      {"parameters", tools[i].value("input_schema", Json::object())}}}});
  }
  return list;
}

}  // namespace

ChatRequest parse_messages_request(std::string_view body, const SamplingParams& defaults) {
  const Json json = parse_body(body);
  RequestParameters parameters(json);
  ChatRequest request;
  request.sampling = defaults;
  parameters.text("model", request.model);
  parameters.boolean("stream", request.stream);
  read_distribution(parameters, request.sampling);
  read_stop(parameters, "stop_sequences", request.sampling);
  request.has_max_tokens =
      parameters.integer("max_tokens", request.sampling.max_tokens, 1, std::numeric_limits<std::int32_t>::max());
  if (!request.has_max_tokens) throw RequestError("max_tokens", "is missing");

  const Json& given = parameters.value("messages");
  if (!given.is_array()) RequestParameters::refuse("messages", given, "an array");
  if (given.empty()) throw RequestError("messages", "is empty", "give at least one message");
  Json messages = Json::array();
  if (const std::string system = joined_blocks(parameters.value("system"), "system"); !system.empty())
    messages.push_back({{"role", "system"}, {"content", system}});
  for (std::size_t i = 0; i < given.size(); ++i) append_message(given[i], text_of("messages[", i, "]"), messages);
  request.messages = std::make_shared<Json>(template_messages(messages));

  Json variables = Json::object();
  if (Json tools = tools_of(parameters, request); !tools.empty()) variables["tools"] = std::move(tools);
  if (const Json& thinking = parameters.value("thinking"); !thinking.is_null()) {
    if (thinking != Json{{"type", "disabled"}})
      throw RequestError("thinking", "is not supported", R"(leave it out, or give {"type": "disabled"})");
    variables["enable_thinking"] = false;
  }
  request.variables = std::make_shared<Json>(std::move(variables));
  for (const char* key : {"metadata", "service_tier"}) parameters.ignore(key);
  parameters.refuse_others();
  return request;
}

}  // namespace hone
