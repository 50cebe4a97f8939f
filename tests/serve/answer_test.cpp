// Division of answers: what is streamed equals the whole, however the text is divided.
#include "serve/answer.h"

#include <gtest/gtest.h>

#include <string>

#include "core/random.h"

namespace hone {
namespace {

AnswerPart divided(const AnswerDivision& division, std::string_view text, const std::vector<std::size_t>& ends) {
  AnswerDivider divider(division);
  AnswerPart whole;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    GenerationProgress progress;
    progress.text = text.substr(begin, ends[i] - begin);
    progress.tokens = {static_cast<TokenId>(i)};
    progress.logps = {-1.0f};
    if (i + 1 == ends.size()) progress.finish_reason = FinishReason::kStop;
    begin = ends[i];
    whole.append(divider.add(std::move(progress)));
  }
  return whole;
}

std::string shown(const AnswerPart& part) {
  std::string text = "[" + part.reasoning + "][" + part.content + "]";
  for (const ToolCall& call : part.calls) text += call.name + "(" + call.arguments + ")";
  return text;
}

const std::string kCall = R"(<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>)";

TEST(AnswerDivider, DoesNotDependOnHowTheTextArrives) {
  const std::string texts[] = {"",
                               " ",
                               "Hello",
                               " Hello <b> < tool",
                               "Hello <tool_cal",
                               "<think>why</think>\n\nbecause",
                               " \n<think>why</thin",
                               "<think>a</think>" + kCall,
                               "I ask.\n " + kCall + "\n" + kCall + " \n",
                               "I ask. " + kCall + " and wait. ",
                               kCall + "<tool_call>{",
                               " " + kCall,
                               R"({"name": "f", "parameters": {"a": 1}})",
                               R"( {"name": "f"} is no call)",
                               "<|python_tag|>" + std::string(R"({"name": "f", "parameters": {}})"),
                               "<|python"};
  const RandomStream random(1, "answers");
  std::uint64_t draw = 0;
  for (const std::string& text : texts) {
    for (int form = 0; form < 8; ++form) {
      const AnswerDivision division{
          .reasoning = (form & 1) != 0, .reasoning_opened = (form & 2) != 0, .tools = (form & 4) != 0};
      const std::string whole = shown(divided(division, text, {text.size()}));
      for (std::size_t cut = 0; cut <= text.size(); ++cut)
        EXPECT_EQ(shown(divided(division, text, {cut, text.size()})), whole) << text << " cut at " << cut;
      std::vector<std::size_t> ends;
      for (std::size_t i = 1; i <= text.size(); ++i)
        if (random.bits(draw++) % 3 != 0) ends.push_back(i);
      ends.push_back(text.size());
      const AnswerPart many = divided(division, text, ends);
      EXPECT_EQ(shown(many), whole) << text;
      EXPECT_EQ(many.tokens.size(), ends.size());
    }
  }
}

TEST(AnswerDivider, FindsReasoningContentAndCalls) {
  const AnswerDivision all{.reasoning = true, .reasoning_opened = false, .tools = true};
  EXPECT_EQ(shown(divided(all, "<think>w</think>I ask. " + kCall, {10, 25, 40, 86})), R"([w][I ask.]f({"a":1}))");
  EXPECT_EQ(shown(divided({}, "<think>w</think>", {16})), "[][<think>w</think>]");
  EXPECT_EQ(shown(divided({.reasoning = true, .reasoning_opened = true, .tools = false}, "w</think>c", {10})),
            "[w][c]");
}

// Nothing is held back that cannot be a tag.
TEST(AnswerDivider, ShowsTextAsSoonAsItIsCertain) {
  AnswerDivider divider({.reasoning = true, .reasoning_opened = false, .tools = true});
  const auto add = [&](std::string text) {
    GenerationProgress progress;
    progress.text = std::move(text);
    return divider.add(std::move(progress)).content;
  };
  EXPECT_EQ(add("Hello"), "Hello");
  EXPECT_EQ(add(" world <"), " world");
  EXPECT_EQ(add("b"), " <b");
}

}  // namespace
}  // namespace hone
