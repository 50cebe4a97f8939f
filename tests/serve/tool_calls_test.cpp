#include "serve/tool_calls.h"

#include <gtest/gtest.h>

#include <string>

namespace hone {
namespace {

// Returns what was found as "content|name(arguments)|name(arguments)".
std::string found_in(const std::string& answer) {
  const ToolAnswer result = parse_tool_calls(answer);
  std::string text = result.content;
  for (const ToolCall& call : result.calls) text += "|" + call.name + "(" + call.arguments + ")";
  return text;
}

TEST(ToolCalls, ReadsTagsAnywhere) {
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": \"}\"}}\n</tool_call>";
  EXPECT_EQ(found_in(call), R"(|f({"b":1,"a":"}"}))");
  EXPECT_EQ(found_in("I ask. \n" + call + "\n" + call), R"(I ask.|f({"b":1,"a":"}"})|f({"b":1,"a":"}"}))");
}

TEST(ToolCalls, ReadsBareObjects) {
  const std::string call = R"({"name": "f", "parameters": {"a": "};\"}"}})";
  EXPECT_EQ(found_in(call), R"(|f({"a":"};\"}"}))");
  EXPECT_EQ(found_in("<|python_tag|>" + call + " ; " + call + "\n"), R"(|f({"a":"};\"}"})|f({"a":"};\"}"}))");
}

TEST(ToolCalls, EverythingElseIsContent) {
  for (const std::string answer :
       {"", " ", " Hello ", "{", "{}", "}", "[1]", R"({"name": 1, "parameters": {}})", R"({"name": "f"})",
        R"({"name": "f", "parameters": []})", R"({"name": "f", "parameters": {}} and more)",
        R"({"name": "f", "parameters": {}};)", R"(<tool_call>{"name": "f", "arguments": {}})",
        R"(a <tool_call>{"name": "f"}</tool_call> )", "<tool_call></tool_call>", "<|python_tag|>print(1)",
        R"(<tool_call>{"name": "f", "arguments": {}}</tool_call><tool_call>{</tool_call>)"})
    EXPECT_EQ(found_in(answer), answer);
}

}  // namespace
}  // namespace hone
