#include "serve/chat_request.h"

#include <limits>
#include <utility>

#include "core/json_value.h"
#include "serve/chat_messages.h"
#include "serve/request_error.h"

namespace hone {
namespace {

// "auto", "none", "required" or {"type": "function", "function": {"name": ...}}.
void read_tool_choice(const Json& choice, ChatRequest& request) {
  if (choice.is_null() || choice == "auto" || choice == "none") return;
  if (choice == "required") {
    request.demanded_call = DemandedCall{{}, "tool_choice"};
    return;
  }
  std::string name;
  if (choice.is_object() && choice.value("type", Json()) == "function" && choice.contains("function")) {
    RequestParameters function(choice["function"], "tool_choice.function.");
    if (choice["function"].is_object() && function.text("name", name) && !name.empty()) {
      request.demanded_call = DemandedCall{name, "tool_choice"};
      return;
    }
  }
  throw RequestError("tool_choice", "is not supported", R"(use "auto", "none", "required" or the name of a function)");
}

// Throws RequestError unless the tool is a function with a name, as OpenAI describes one.
void check_tool(const Json& tool, const std::string& param) {
  if (!tool.is_object()) RequestParameters::refuse(param, tool, "an object");
  if (const Json type = tool.value("type", Json("function")); type != "function")
    RequestParameters::refuse(param + ".type", type, "\"function\"");
  const Json function = tool.value("function", Json());
  if (!function.is_object()) RequestParameters::refuse(param + ".function", function, "an object");
  if (const Json name = function.value("name", Json()); !name.is_string())
    RequestParameters::refuse(param + ".function.name", name, "a string");
}

void read_template(RequestParameters& parameters, ChatRequest& request) {
  request.messages = std::make_shared<Json>(template_messages(parameters.value("messages")));
  Json variables = parameters.value("chat_template_kwargs");
  if (variables.is_null()) variables = Json::object();
  if (!variables.is_object()) RequestParameters::refuse("chat_template_kwargs", variables, "an object");
  const Json& tools = parameters.value("tools");
  if (!tools.is_null() && !tools.is_array()) RequestParameters::refuse("tools", tools, "an array");
  const Json& choice = parameters.value("tool_choice");
  read_tool_choice(choice, request);
  if (choice == "auto" && tools.empty()) throw RequestError("tool_choice", "is \"auto\", but there are no tools");
  for (std::size_t i = 0; i < tools.size(); ++i) check_tool(tools[i], text_of("tools[", i, "]"));
  if (!tools.empty()) variables["tools"] = tools;
  request.forbids_calls = choice == "none";
  const Json& effort = parameters.value("reasoning_effort");
  if (!effort.is_null() && !effort.is_string()) RequestParameters::refuse("reasoning_effort", effort, "a string");
  if (effort.is_string()) variables["reasoning_effort"] = effort;
  request.variables = std::make_shared<Json>(std::move(variables));
}

}  // namespace

bool ChatRequest::has_tools() const { return !forbids_calls && variables->contains("tools"); }

ChatRequest parse_chat_request(std::string_view body, const SamplingParams& defaults) {
  const Json json = parse_body(body);
  RequestParameters parameters(json);
  ChatRequest request;
  request.sampling = defaults;
  read_generation(parameters, request);
  // The newer name counts if both are given.
  request.has_max_tokens |= parameters.integer("max_completion_tokens", request.sampling.max_tokens, 1,
                                               std::numeric_limits<std::int32_t>::max());
  parameters.boolean("logprobs", request.logprobs);
  if (parameters.integer("top_logprobs", request.sampling.logprobs, 0, kMaxTopLogprobs) &&
      request.sampling.logprobs > 0 && !request.logprobs)
    throw RequestError("top_logprobs", "is given, but logprobs is not true", "leave it out");
  parameters.only("echo", false);
  parameters.only("add_special_tokens", false);
  read_template(parameters, request);
  read_neutral(parameters);
  parameters.boolean("return_token_ids", request.token_ids);
  parameters.boolean("return_tokens_as_token_ids", request.tokens_as_ids);
  parameters.refuse_others();
  return request;
}

}  // namespace hone
