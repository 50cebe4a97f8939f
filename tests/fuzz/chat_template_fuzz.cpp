// Fuzz target: the input as a chat template, which renders a small conversation.

#include "core/json_value.h"
#include "fuzz/target.h"
#include "text/chat_template.h"

namespace hone::fuzz {
namespace {

const Json& conversation() {
  static const Json messages = Json::parse(R"([
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is 1 + 1?\n"},
    {"role": "assistant", "content": "", "tool_calls": [
      {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 1.5, "c": [true, null]}}}]},
    {"role": "tool", "name": "add", "content": "2"},
    {"role": "assistant", "content": "<think>easy</think> 2", "weight": -1}])");
  return messages;
}

const Json& variables() {
  static const Json values = Json::parse(R"({"bos_token": "<s>", "eos_token": "</s>", "tools": [{"type": "function",
    "function": {"name": "add", "description": "Adds", "parameters": {"type": "object", "properties": {"a": {"type":
    "number"}}}}}], "enable_thinking": false, "x": {"y": [1, 2, {"z": "\u00e4"}]}})");
  return values;
}

}  // namespace
}  // namespace hone::fuzz

HONE_FUZZ_TARGET(chat_template)(const std::uint8_t* data, std::size_t size) {
  using namespace hone;
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::accepts([&] {
    const ChatTemplate chat_template(text);
    const RenderedChat chat = chat_template.render(fuzz::conversation(), true, fuzz::variables());
    std::size_t end = 0;
    for (const auto& [from, to] : chat.assistant) {
      HONE_ASSERT(end <= from && from <= to && to <= chat.text.size(), "an assistant's part [", from, ", ", to, ")");
      end = to;
    }
    HONE_ASSERT(chat_template.render(fuzz::conversation(), true, fuzz::variables()).text == chat.text,
                "a second rendering differs");
  });
  return 0;
}
