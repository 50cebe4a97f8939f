#include "serve/tool_calls.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/json_value.h"

namespace hone {
namespace {

constexpr std::string_view kCallOpening = "<tool_call>";
constexpr std::string_view kCallClosing = "</tool_call>";
constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr std::string_view kOuterSpace = " \t\r\n";

std::string_view without_outer_space(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kOuterSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kOuterSpace) - first + 1);
}

// Returns nothing if the text is not one JSON object with a name and an object of arguments under `key`.
std::optional<ToolCall> parse_call(std::string_view text, const char* key) {
  Json json;
  try {
    json = parse_json(text, "tool call");
  } catch (const Error&) {
    return std::nullopt;
  }
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string()) return std::nullopt;
  if (!json.contains(key) || !json[key].is_object()) return std::nullopt;
  return ToolCall{json["name"].get<std::string>(), json[key].dump()};
}

// Returns nothing if a tag has no partner or a call is malformed.
std::optional<ToolAnswer> parse_tagged(std::string_view answer) {
  ToolAnswer result;
  for (;;) {
    const std::size_t opening = answer.find(kCallOpening);
    result.content += answer.substr(0, opening);
    if (opening == std::string_view::npos) break;
    answer.remove_prefix(opening + kCallOpening.size());
    const std::size_t closing = answer.find(kCallClosing);
    if (closing == std::string_view::npos) return std::nullopt;
    std::optional<ToolCall> call = parse_call(answer.substr(0, closing), "arguments");
    if (!call) return std::nullopt;
    result.calls.push_back(std::move(*call));
    answer.remove_prefix(closing + kCallClosing.size());
  }
  result.content.resize(result.content.find_last_not_of(kOuterSpace) + 1);
  return result;
}

// Returns the length of the JSON object at the start of the text, or 0 if it does not end. Braces inside of strings do
// not count.
std::size_t object_length(std::string_view text) {
  std::size_t depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quoted) {
      if (text[i] == '\\')
        ++i;
      else if (text[i] == '"')
        quoted = false;
    } else if (text[i] == '"') {
      quoted = true;
    } else if (text[i] == '{') {
      ++depth;
    } else if (text[i] == '}') {
      if (depth <= 1) return i + 1;
      --depth;
    }
  }
  return 0;
}

// Returns nothing if the answer is anything but calls.
std::optional<ToolAnswer> parse_bare(std::string_view answer) {
  ToolAnswer result;
  answer = without_outer_space(answer);
  if (answer.starts_with(kPythonTag)) answer = without_outer_space(answer.substr(kPythonTag.size()));
  for (;;) {
    if (!answer.starts_with('{')) return std::nullopt;
    const std::size_t length = object_length(answer);
    std::optional<ToolCall> call = parse_call(answer.substr(0, length), "parameters");
    if (!call) return std::nullopt;
    result.calls.push_back(std::move(*call));
    answer = without_outer_space(answer.substr(length));
    if (answer.empty()) return result;
    if (!answer.starts_with(';')) return std::nullopt;
    answer = without_outer_space(answer.substr(1));
  }
}

// Returns how many bytes at the end of the text are white space or may be the beginning of a tag after white space.
std::size_t uncertain_end(std::string_view text) {
  std::size_t end = text.size();
  for (std::size_t length = std::min(end, kCallOpening.size() - 1); length > 0; --length) {
    if (!text.ends_with(kCallOpening.substr(0, length))) continue;
    end -= length;
    break;
  }
  return text.size() - (text.substr(0, end).find_last_not_of(kOuterSpace) + 1);
}

// Returns true if an answer that begins with this text may consist of calls without tags.
bool may_be_bare(std::string_view text) {
  text = without_outer_space(text);
  return text.starts_with('{') || text.substr(0, kPythonTag.size()) == kPythonTag.substr(0, text.size());
}

}  // namespace

ToolAnswer parse_tool_calls(std::string_view answer) {
  std::optional<ToolAnswer> result =
      answer.find(kCallOpening) == std::string_view::npos ? parse_bare(answer) : parse_tagged(answer);
  return result ? std::move(*result) : ToolAnswer{std::string(answer), {}};
}

std::string ToolCallSplitter::add(std::string_view text) {
  held_ += text;
  if (is_call_) return {};
  const bool begins = !began_;
  if (begins && may_be_bare(held_)) return {};  // decided by the first text that is not white space
  began_ = true;
  const std::size_t opening = held_.find(kCallOpening);
  is_call_ = opening != std::string::npos;
  const std::size_t before = is_call_ ? opening : held_.size();
  const std::string_view plain = std::string_view(held_).substr(0, before);
  std::string certain =
      held_.substr(0, is_call_ ? plain.find_last_not_of(kOuterSpace) + 1 : plain.size() - uncertain_end(plain));
  held_.erase(0, certain.size());
  return certain;
}

ToolAnswer ToolCallSplitter::finish() { return parse_tool_calls(std::exchange(held_, {})); }

}  // namespace hone
