#include "serve/chat_messages.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "core/json_value.h"
#include "serve/request_error.h"

namespace hone {
namespace {

constexpr std::array<std::string_view, 5> kRoles{"system", "developer", "user", "assistant", "tool"};

const std::string& text_at(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) throw RequestError(where + "." + key, "is missing", "expected a string");
  if (!found->is_string())
    throw RequestError(where + "." + key, text_of("is ", found->type_name(), ", expected a string"));
  return found->get_ref<const std::string&>();
}

// Returns the texts of content parts, joined by line breaks.
std::string joined_parts(const Json& parts, const std::string& where) {
  std::string joined;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string part = text_of(where, "[", i, "]");
    if (!parts[i].is_object()) throw RequestError(part, text_of("is ", parts[i].type_name(), ", expected an object"));
    const std::string& type = text_at(parts[i], "type", part);
    if (type != "text") throw RequestError(part + ".type", text_of("\"", type, "\" is not supported"), "use \"text\"");
    if (i > 0) joined += '\n';
    joined += text_at(parts[i], "text", part);
  }
  return joined;
}

// Replaces the arguments of a tool call, JSON in a string, by the object that they state.
void parse_arguments(Json& call, const std::string& where) {
  if (!call.is_object()) throw RequestError(where, text_of("is ", call.type_name(), ", expected an object"));
  const auto function = call.find("function");
  if (function == call.end() || !function->is_object())
    throw RequestError(where + ".function", "is not an object", R"(expected {"name", "arguments"})");
  (void)text_at(*function, "name", where + ".function");
  const auto arguments = function->find("arguments");
  if (arguments == function->end() || !arguments->is_string()) return;
  const std::string param = where + ".function.arguments";
  const auto text = arguments->get<std::string>();
  try {
    *arguments = text.empty() ? Json::object() : parse_json(text, "JSON");
  } catch (const Error& error) {
    throw RequestError(param, error.what());
  }
  if (!arguments->is_object())
    throw RequestError(param, text_of("is the text of ", arguments->type_name(), ", expected that of an object"));
}

void check_message(Json& message, const std::string& where) {
  if (!message.is_object()) throw RequestError(where, text_of("is ", message.type_name(), ", expected an object"));
  const std::string& role = text_at(message, "role", where);
  if (std::ranges::find(kRoles, role) == kRoles.end())
    throw RequestError(where + ".role", text_of("is \"", role, "\""), "use system, developer, user, assistant or tool");
  const auto calls = message.find("tool_calls");
  const bool has_calls = calls != message.end() && calls->is_array() && !calls->empty();
  if (calls != message.end() && !calls->is_null() && !calls->is_array())
    throw RequestError(where + ".tool_calls", text_of("is ", calls->type_name(), ", expected an array"));
  if (has_calls)
    for (std::size_t i = 0; i < calls->size(); ++i)
      parse_arguments((*calls)[i], text_of(where, ".tool_calls[", i, "]"));
  if (calls != message.end() && !has_calls) message.erase("tool_calls");
  Json& content = message["content"];
  if (content.is_array()) content = joined_parts(content, where + ".content");
  if (content.is_null() && has_calls) content = "";
  if (!content.is_string())
    throw RequestError(where + ".content", text_of("is ", content.type_name(), ", expected a string or text parts"));
}

}  // namespace

Json template_messages(const Json& messages) {
  if (!messages.is_array()) throw RequestError("messages", text_of("is ", messages.type_name(), ", expected an array"));
  if (messages.empty()) throw RequestError("messages", "is empty", "give at least one message");
  Json result = messages;
  for (std::size_t i = 0; i < result.size(); ++i) check_message(result[i], text_of("messages[", i, "]"));
  return result;
}

}  // namespace hone
