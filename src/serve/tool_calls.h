// Finds the tool calls in a model's answer.
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
  std::string content;  // what is left of the answer, without white space at its end
  std::vector<ToolCall> calls;
};

// Reads the form of Hermes and Qwen, <tool_call>{"name": ..., "arguments": {...}}</tool_call> anywhere in the answer,
// and the form of Llama 3, an answer that consists of {"name": ..., "parameters": {...}}, of several such objects
// separated by semicolons, with or without <|python_tag|> before them. An answer without a well-formed call, or with
// any call that is malformed, is returned as content, byte for byte: text is never lost.
[[nodiscard]] ToolAnswer parse_tool_calls(std::string_view answer);

// Separates, while an answer is generated, the content that can be shown from text that may be a tool call. What add()
// and finish() return, concatenated, is the content that parse_tool_calls() finds in the whole answer, and the calls
// are those that it finds.
class ToolCallSplitter {
 public:
  // Takes the next text and returns the content that is certain by now.
  [[nodiscard]] std::string add(std::string_view text);
  // Returns the rest of the content, and the calls. Call this once, after the last text.
  [[nodiscard]] ToolAnswer finish();

 private:
  std::string held_;      // text that add() has not returned
  bool began_ = false;    // the answer does not consist of calls without tags
  bool is_call_ = false;  // held_ has a tag
};

}  // namespace hone
