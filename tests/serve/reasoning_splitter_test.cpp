#include "serve/reasoning_splitter.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace hone {
namespace {

// Adds the pieces and returns what came out as "reasoning|content".
std::string split(const std::vector<std::string>& pieces, bool opened) {
  ReasoningSplitter splitter(opened);
  std::string reasoning, content;
  const auto take = [&](const ReasoningSplitter::Part& part) {
    reasoning += part.reasoning;
    content += part.content;
  };
  for (const std::string& piece : pieces) take(splitter.add(piece));
  take(splitter.finish());
  return reasoning + "|" + content;
}

struct Case {
  const char* text;
  bool opened;
  const char* result;
};
constexpr Case kCases[] = {
    {"<think>\na\n</think>\n\nb", false, "\na\n|\n\nb"},
    {"\n <think>a</think>b", false, "a|b"},
    {"a</think>b</think>", true, "a|b</think>"},
    {"a</thin</think>b", true, "a</thin|b"},
    {"a<</think>", true, "a<|"},
    {"a</thi", true, "a</thi|"},
    {"</think>b", true, "|b"},
    {"<think>a", false, "a|"},
    {" <thi", false, "| <thi"},
    {" <thin air", false, "| <thin air"},
    {"a<think>b</think>", false, "|a<think>b</think>"},
    {"a</think>b", false, "|a</think>b"},
    {" \n", false, "| \n"},
    {"", false, "|"},
    {"", true, "|"},
};

TEST(ReasoningSplitter, SplitsAtTheTags) {
  for (const Case& one : kCases) EXPECT_EQ(split({one.text}, one.opened), one.result) << one.text;
}

TEST(ReasoningSplitter, DoesNotDependOnHowTheTextIsDivided) {
  for (const Case& one : kCases) {
    const std::string text = one.text;
    std::vector<std::string> bytes;
    for (const char byte : text) bytes.emplace_back(1, byte);
    EXPECT_EQ(split(bytes, one.opened), one.result) << text;
    for (std::size_t i = 0; i <= text.size(); ++i)
      for (std::size_t j = i; j <= text.size(); ++j)
        EXPECT_EQ(split({text.substr(0, i), text.substr(i, j - i), text.substr(j)}, one.opened), one.result)
            << text << " at " << i << ", " << j;
  }
}

TEST(ReasoningSplitter, HoldsBackOnlyWhatMayBeATag) {
  ReasoningSplitter splitter(true);
  EXPECT_EQ(splitter.add("abc </th").reasoning, "abc ");
  EXPECT_EQ(splitter.add("e").reasoning, "</the");
  EXPECT_EQ(splitter.add("</think>x").content, "x");
  EXPECT_EQ(splitter.add("<").content, "<");
}

}  // namespace
}  // namespace hone
