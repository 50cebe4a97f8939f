// Finds the tool calls in a model's finished answer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hone {

struct ToolCall {
  std::string name;
  std::string arguments;  // an object, as JSON text
};
struct ToolAnswer {
  std::string content;  // what is left of the answer, without white space at its ends
  std::vector<ToolCall> calls;
};

// Reads the form of Hermes and Qwen, <tool_call>{"name": ..., "arguments": {...}}</tool_call> anywhere in the answer,
// and the form of Llama 3, an answer that consists of {"name": ..., "parameters": {...}}, of several such objects
// separated by semicolons, with or without <|python_tag|> before them. An answer without a well-formed call, or with
// any call that is malformed, is returned as content, byte for byte: text is never lost.
[[nodiscard]] ToolAnswer parse_tool_calls(std::string_view answer);

}  // namespace hone
