// Tests pathological inputs, each of which must end quickly. A step of quadratic time would take far longer than all
// other tests.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "core/random.h"
#include "math_equality/answer.h"
#include "math_equality/value.h"
#include "reward/registry.h"

namespace hone {
namespace {

constexpr std::size_t kLarge = 40'000;  // repetitions

std::string repeated(std::string_view piece, std::size_t count = kLarge) {
  std::string text;
  text.reserve(piece.size() * count);
  for (std::size_t i = 0; i < count; ++i) text += piece;
  return text;
}

TEST(Robustness, long_repetitions_come_back) {
  for (const char* piece : {"$",
                            "$$ ",
                            "\\[",
                            "\\(",
                            " [",
                            "\\boxed{",
                            "\\fbox",
                            "{",
                            "}",
                            "answer",
                            "answer:$",
                            "final answer ",
                            "final answer is ",
                            "\\boxed{1},",
                            "$\\boxed{1}$ and ",
                            "\\frac",
                            "-\\frac{1}{2}",
                            "1 ",
                            "1+ ",
                            "=1",
                            "**1",
                            ",\n",
                            " \n",
                            "\\",
                            "(",
                            "a",
                            "<think>\n",
                            "\n</think>\n<answer>\n",
                            "\n</answer>x",
                            "\xF0\x9F",
                            "Step 1"}) {
    const std::string text = repeated(piece);
    (void)parse_gold(text);
    (void)parse_answer(text);
    (void)parse_answer("\\boxed{" + text + "}");
    (void)parse_answer("answer" + text + "$6$");
    RewardRegistry all;
    register_all_reward(all);
    const RewardInput input{.completion = text};
    for (const char* name : {"format", "tag_count", "reasoning_steps", "repetition_penalty"}) {
      EXPECT_TRUE(all.make(name, {}).score({&input, 1}).at(0).has_value()) << name << " of many " << piece;
    }
  }
}

TEST(Robustness, deep_nesting_does_not_recurse_without_end) {
  for (const char* piece :
       {"(", "{", "\\frac{1}{", "\\sqrt{", "-", "2^{", "\\{", "((1,2),", "|", "\\left(", "\\boxed{", "1+(", "[1,"}) {
    const std::string open = repeated(piece, 100);
    EXPECT_FALSE(parse_latex(open).has_value() && parse_latex(open)->kind == MathValue::Kind::kScalar) << piece;
    (void)parse_latex(open + "1" + repeated("}", 100));
    (void)parse_latex(open + "1" + repeated(")", 100));
    (void)parse_arithmetic(open + "1" + repeated(")", 100));
  }
}

TEST(Robustness, huge_values_stay_text) {
  for (const char* latex : {"9^{9^{9}}", "2^{4096}", "(x+y+z+w)^{60}", "\\sqrt{99999999999999999999}", "99999!",
                            "10^{-400}", "(1+x)^{64}(1+y)^{64}", "340282366920938463463374607431768211456000",
                            "\\frac{1}{10^{30}+\\frac{1}{10^{30}}}", "-170141183460469231731687303715884105728"}) {
    const auto gold = parse_answer(std::string("\\boxed{") + latex + "}");
    ASSERT_TRUE(gold.has_value()) << latex;
    EXPECT_TRUE(equal(*gold, *gold)) << latex << " does not equal itself";
    const auto other = parse_answer("\\boxed{1}");
    EXPECT_FALSE(equal(*gold, *other)) << latex;
  }
}

TEST(Robustness, random_text_never_throws) {
  const char* pieces[] = {"\\boxed{",
                          "}",
                          "{",
                          "$",
                          "1",
                          "23",
                          ".",
                          ",",
                          "+",
                          "-",
                          "/",
                          "^",
                          "_",
                          "(",
                          ")",
                          "[",
                          "]",
                          "\\frac",
                          "\\sqrt",
                          "x",
                          "e",
                          "d",
                          " ",
                          "\\text{ab}",
                          "\\pi",
                          "\\pm",
                          "=",
                          "\\approx",
                          "\\cup",
                          "\\{",
                          "\\}",
                          "%",
                          "\\%",
                          ";",
                          "!",
                          "\\infty",
                          "\\circ",
                          "answer",
                          " is ",
                          "\\in",
                          "&",
                          "\\\\",
                          "\\begin{pmatrix}",
                          "\\end{pmatrix}",
                          "|",
                          "\xC3",
                          "π",
                          "<",
                          "\\left("};
  const RandomStream random(7, "robustness");
  std::uint64_t index = 0;
  std::size_t parsed = 0;
  for (int round = 0; round < 8000; ++round) {
    std::string text = "\\boxed{";
    const std::uint64_t length = random.below(index++, 14);
    for (std::uint64_t i = 0; i < length; ++i) text += pieces[random.below(index++, std::size(pieces))];
    text += "}";
    const auto gold = parse_gold(text);
    const auto answer = parse_answer(text);
    if (gold && answer) (void)equal(*gold, *answer);
    if (answer && answer->value) {
      ++parsed;
      EXPECT_TRUE(equal(*answer, *answer)) << text;
    }
  }
  EXPECT_GT(parsed, 200u);
}

}  // namespace
}  // namespace hone
