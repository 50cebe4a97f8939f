#include "serve/responses_request.h"

#include <limits>
#include <string>
#include <utility>

#include "core/json_value.h"
#include "serve/chat_messages.h"
#include "serve/request_error.h"

namespace hone {
namespace {

const std::string& item_text(const Json& item, const char* key, const std::string& where) {
  const auto found = item.find(key);
  if (found == item.end() || !found->is_string()) throw RequestError(where + "." + key, "is not a string");
  return found->get_ref<const std::string&>();
}

// Content parts of this API are texts of several types; templates know one.
Json plain_content(const Json& content, const std::string& where) {
  if (!content.is_array()) return content;
  Json parts = Json::array();
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string place = text_of(where, "[", i, "]");
    if (!content[i].is_object()) RequestParameters::refuse(place, content[i], "an object");
    const std::string& type = item_text(content[i], "type", place);
    if (type != "input_text" && type != "output_text" && type != "text")
      throw RequestError(place + ".type", text_of("\"", type, "\" is not supported"), "use \"input_text\"");
    parts.push_back({{"type", "text"}, {"text", item_text(content[i], "text", place)}});
  }
  return parts;
}

void append_item(const Json& item, const std::string& where, Json& messages) {
  if (!item.is_object()) RequestParameters::refuse(where, item, "an object");
  const std::string type = item.contains("type") ? item_text(item, "type", where) : "message";
  if (type == "message") {
    messages.push_back({{"role", item_text(item, "role", where)},
                        {"content", plain_content(item.value("content", Json()), where + ".content")}});
  } else if (type == "function_call") {
    const Json call{
        {"id", item_text(item, "call_id", where)},
        {"type", "function"},
        {"function", {{"name", item_text(item, "name", where)}, {"arguments", item_text(item, "arguments", where)}}}};
    if (messages.empty() || messages.back()["role"] != "assistant" || !messages.back().contains("tool_calls"))
      messages.push_back({{"role", "assistant"}, {"content", nullptr}, {"tool_calls", Json::array()}});
    messages.back()["tool_calls"].push_back(call);
  } else if (type == "function_call_output") {
    messages.push_back({{"role", "tool"},
                        {"tool_call_id", item_text(item, "call_id", where)},
                        {"content", plain_content(item.value("output", Json()), where + ".output")}});
  } else if (type != "reasoning") {  // templates drop the reasoning of earlier turns
    throw RequestError(where + ".type", text_of("\"", type, "\" is not supported"));
  }
}

void read_input(RequestParameters& parameters, ResponsesRequest& request) {
  Json messages = Json::array();
  std::string instructions;
  if (parameters.text("instructions", instructions))
    messages.push_back({{"role", "system"}, {"content", instructions}});
  const Json& input = parameters.value("input");
  if (input.is_string())
    messages.push_back({{"role", "user"}, {"content", input}});
  else if (!input.is_array())
    RequestParameters::refuse("input", input, "a string or an array");
  for (std::size_t i = 0; input.is_array() && i < input.size(); ++i)
    append_item(input[i], text_of("input[", i, "]"), messages);
  request.messages = std::make_shared<Json>(template_messages(messages));
}

// "auto", "none", "required" or {"type": "function", "name": ...}.
void read_choice(const Json& choice, ResponsesRequest& request) {
  if (choice.is_null() || choice == "auto" || choice == "none") return;
  const bool names = choice.is_object() && choice.value("type", Json()) == "function" &&
                     choice.value("name", Json()).is_string() && !choice["name"].get_ref<const std::string&>().empty();
  if (choice != "required" && !names)
    throw RequestError("tool_choice", "is not supported",
                       R"(use "auto", "none", "required" or the name of a function)");
  request.demanded_call = DemandedCall{names ? choice["name"].get<std::string>() : std::string(), "tool_choice"};
}

// Tools have the function's fields next to their type; templates know the form of chat completions.
Json plain_tools(RequestParameters& parameters, ResponsesRequest& request) {
  const Json& tools = parameters.value("tools");
  const Json& choice = parameters.value("tool_choice");
  read_choice(choice, request);
  if (tools.is_null() || choice == "none") return Json::array();
  if (!tools.is_array()) RequestParameters::refuse("tools", tools, "an array");
  Json list = Json::array();
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const std::string place = text_of("tools[", i, "]");
    if (!tools[i].is_object()) RequestParameters::refuse(place, tools[i], "an object");
    if (const std::string& type = item_text(tools[i], "type", place); type != "function")
      throw RequestError(place + ".type", text_of("\"", type, "\" is not supported"), "use \"function\"");
    Json function = tools[i];
    for (const char* key : {"type", "strict"}) function.erase(key);
    list.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return list;
}

void read_reasoning(RequestParameters& parameters, Json& variables) {
  const Json& reasoning = parameters.value("reasoning");
  if (reasoning.is_null()) return;
  if (!reasoning.is_object()) RequestParameters::refuse("reasoning", reasoning, "an object");
  RequestParameters inner(reasoning, "reasoning.");
  std::string effort;
  if (inner.text("effort", effort)) variables["reasoning_effort"] = effort;
  for (const char* key : {"summary", "generate_summary"}) inner.ignore(key);
  inner.refuse_others();
}

void read_neutral_responses(RequestParameters& parameters, ResponsesRequest& request) {
  const Json& text = parameters.value("text");
  if (!text.is_null() && !text.is_object()) RequestParameters::refuse("text", text, "an object");
  if (text.is_object()) {
    RequestParameters inner(text, "text.");
    read_response_format(inner.value("format"), "text.format", request);
    inner.only("verbosity", "medium");
    inner.refuse_others();
  }
  parameters.only("truncation", "disabled");
  parameters.only("background", false);
  parameters.only("parallel_tool_calls", true);
  parameters.only("top_logprobs", 0);
  parameters.only("include", Json::array());
  parameters.only("max_tool_calls", nullptr);
  for (const char* key : {"store", "user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key"})
    parameters.ignore(key);
}

}  // namespace

ResponsesRequest parse_responses_request(std::string_view body, const SamplingParams& defaults) {
  const Json json = parse_body(body);
  RequestParameters parameters(json);
  ResponsesRequest request;
  request.sampling = defaults;
  parameters.text("model", request.model);
  parameters.boolean("stream", request.stream);
  parameters.only("stream_options", Json::object());
  read_distribution(parameters, request.sampling);
  request.has_max_tokens =
      parameters.integer("max_output_tokens", request.sampling.max_tokens, 1, std::numeric_limits<std::int32_t>::max());
  read_input(parameters, request);
  Json variables = Json::object();
  if (Json tools = plain_tools(parameters, request); !tools.empty()) variables["tools"] = std::move(tools);
  read_reasoning(parameters, variables);
  request.variables = std::make_shared<Json>(std::move(variables));
  read_neutral_responses(parameters, request);
  parameters.refuse_others();
  Json echoed{{"instructions", json.value("instructions", Json())},
              {"max_output_tokens", json.value("max_output_tokens", Json())},
              {"metadata", json.value("metadata", Json::object())},
              {"parallel_tool_calls", true},
              {"temperature", request.sampling.temperature},
              {"tool_choice", json.value("tool_choice", Json("auto"))},
              {"tools", json.value("tools", Json::array())},
              {"top_p", request.sampling.top_p}};
  request.echoed = std::make_shared<Json>(std::move(echoed));
  return request;
}

}  // namespace hone
