// Fuzz target: the input as a model's answer, split into reasoning, content and tool calls.

#include <algorithm>
#include <string>

#include "core/json_value.h"
#include "fuzz/target.h"
#include "serve/reasoning_splitter.h"
#include "serve/tool_calls.h"

namespace hone::fuzz {
namespace {

// Splits an answer that arrives in two texts, divided at `border`.
ReasoningSplitter::Part split(std::string_view answer, std::size_t border, bool opened) {
  ReasoningSplitter splitter(opened);
  ReasoningSplitter::Part whole;
  const auto take = [&](const ReasoningSplitter::Part& part) {
    whole.reasoning += part.reasoning;
    whole.content += part.content;
  };
  take(splitter.add(answer.substr(0, border)));
  take(splitter.add(answer.substr(border)));
  take(splitter.finish());
  return whole;
}

// Separates the tool calls of an answer that arrives in two texts.
ToolAnswer separate(std::string_view answer, std::size_t border) {
  ToolCallSplitter splitter;
  std::string content = splitter.add(answer.substr(0, border));
  content += splitter.add(answer.substr(border));
  ToolAnswer rest = splitter.finish();
  rest.content = content + rest.content;
  return rest;
}

}  // namespace
}  // namespace hone::fuzz

HONE_FUZZ_TARGET(answer)(const std::uint8_t* data, std::size_t size) {
  using namespace hone;
  const std::string_view answer = fuzz::as_text(data, size);
  const ToolAnswer found = parse_tool_calls(answer);
  for (std::size_t border = 0; border < std::min<std::size_t>(size, 64); ++border) {
    const ToolAnswer separated = fuzz::separate(answer, border);
    HONE_ASSERT(separated.content == found.content && separated.calls.size() == found.calls.size(), "divided at ",
                border);
  }
  for (const bool opened : {false, true}) {
    const auto whole = fuzz::split(answer, size, opened);
    for (std::size_t border = 0; border < std::min<std::size_t>(size, 64); ++border) {
      const auto divided = fuzz::split(answer, border, opened);
      HONE_ASSERT(divided.reasoning == whole.reasoning && divided.content == whole.content, "divided at ", border);
    }
  }
  const ToolAnswer parsed = parse_tool_calls(answer);
  HONE_ASSERT(!parsed.calls.empty() || parsed.content == answer, "an answer without calls is not its content");
  for (const ToolCall& call : parsed.calls) HONE_ASSERT(Json::parse(call.arguments).is_object(), call.arguments);
  return 0;
}
