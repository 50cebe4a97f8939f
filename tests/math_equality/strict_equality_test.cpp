// Tests strict equality with answers that Math-Verify accepts but should not, and with answers that both must accept.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "math_equality/comparison.h"
#include "reward/registry.h"
#include "reward/reward_flags.h"
#include "support/paths.h"

namespace hone {
namespace {

struct StrictCase {
  const char* gold;
  const char* answer;  // in a box
  bool by_default;
  bool strictly;
};

constexpr bool kYes = true;
constexpr bool kNo = false;

const std::vector<StrictCase>& strict_cases() {
  static const std::vector<StrictCase> cases = {
      // decimals for small golds
      {R"(10^{-9})", "0.0", kYes, kNo},
      {R"(10^{-9})", "0", kNo, kNo},
      {R"(10^{-9})", "0.000000", kYes, kNo},
      {R"(10^{-9})", "0.000000001", kYes, kYes},
      {R"(10^{-9})", "1E-9", kYes, kYes},
      {R"(10^{-9})", "0.0\\%", kYes, kNo},
      {R"(10^{-9})", R"(10^{-8})", kNo, kNo},
      {R"(10^{-9})", "0.00000001", kYes, kNo},
      {R"(\frac{1}{10000000})", "0.0000003", kYes, kNo},
      {R"(\frac{1}{10000000})", "-0.0000003", kYes, kNo},
      {"0.000000001", "0.0", kYes, kNo},
      {"0.000000001", "0.000000002", kYes, kNo},
      {"0.0", "0.0000001", kYes, kNo},
      {R"(e^{-20})", "0.0", kYes, kNo},
      {R"(e^{-20})", "0.000000002061154", kYes, kYes},
      // decimals for fractions and roots
      {R"(\frac{1}{3})", "0.333333", kYes, kNo},
      {R"(\frac{1}{3})", "0.33333", kNo, kNo},
      {R"(\frac{1}{3})", "0.3333333", kYes, kYes},
      {R"(\frac{1}{3})", "0.3333334", kYes, kNo},
      {R"(\frac{1}{3})", "0.3333331", kYes, kNo},
      {R"(\frac{1}{3})", R"(33.3333\%)", kYes, kNo},
      {R"(\frac{1}{3})", R"(33.33333\%)", kYes, kYes},
      {R"(\frac{2}{3})", "0.666667", kYes, kNo},
      {R"(\frac{2}{3})", "0.6666666", kYes, kNo},
      {R"(\frac{2}{3})", "0.66666666", kYes, kNo},
      {R"(\frac{2}{3})", "0.6666667", kYes, kYes},
      {R"(-\frac{1}{3})", "-0.333333", kYes, kNo},
      {R"(\sqrt{2})", "1.414214", kYes, kYes},
      {R"(\sqrt{2})", "1.4142136", kYes, kYes},
      {R"(\sqrt{2})", "1.4142139", kYes, kNo},
      {R"(\frac{\pi}{100})", "0.031416", kYes, kNo},
      {R"(\frac{3}{4})", "0.75", kYes, kYes},
      {R"(\frac{3}{4})", "0.7500001", kYes, kNo},
      {"0.75", R"(\frac{3}{4})", kYes, kYes},
      {"0.333333", R"(\frac{1}{3})", kYes, kYes},
      {"0.3333333", R"(\frac{1}{3})", kYes, kYes},
      {"3.141593", R"(\pi)", kYes, kYes},
      {"1,2,0.333333", R"(1,2,\frac{1}{3})", kYes, kYes},
      {R"(1,2,\frac{1}{3})", "1,2,0.333333", kYes, kNo},
      {R"((\frac{1}{3},1))", "(0.333333,1)", kYes, kNo},
      {R"(\begin{pmatrix} 1/3 \\ 1 \end{pmatrix})", R"(\begin{pmatrix} 0.333333 \\ 1 \end{pmatrix})", kYes, kNo},
      {R"(x=\frac{1}{3})", "x=0.333333", kYes, kNo},
      // chains
      {"42", "x=41=42", kYes, kNo},
      {"42", "41=42", kYes, kNo},
      {"42", "x=42=42", kYes, kYes},
      {"42", "x=40+2=42", kYes, kYes},
      {"42", "x=7=8=42", kYes, kNo},
      {"42", R"(x=\frac{83}{2}=42)", kYes, kNo},
      {"42", "41+y-y=42", kYes, kNo},
      {"42", "y=y+1=42", kYes, kNo},
      {"x=42", "x=41=42", kYes, kNo},
      {"42", "x+y=42", kYes, kYes},
      {"42", "f(2)=42", kYes, kYes},
      {"2", "e=2", kYes, kYes},
      {"7", "3+4=7", kYes, kYes},
      {"7", "3+5=7", kYes, kNo},
      {"42,5", "x=41=42, y=5", kYes, kNo},
      {"x^2+2x+1", "f(x)=(x+1)^2=x^2+2x+1", kYes, kYes},
      {"x^2+2x+1", "f(x)=x^2=x^2+2x+1", kYes, kNo},
      {R"(\frac{1}{2})", R"(x=0.5=\frac{1}{2})", kYes, kYes},
      // units and percentages
      {"42", R"(42\%)", kYes, kNo},
      {"42", R"(4200\%)", kYes, kYes},
      {R"(42\%)", "42", kYes, kYes},
      {R"(42\%)", "0.42", kYes, kYes},
      {"0.42", R"(42\%)", kYes, kYes},
      {"42", R"(x=42\%)", kYes, kNo},
      {"42", R"(42\text{ km})", kYes, kNo},
      {"42", R"(42\mathrm{km})", kYes, kNo},
      {"42", "42 km", kYes, kNo},
      {"42", "42 miles", kYes, kNo},
      {"42", R"(42\text{ or so})", kYes, kNo},
      {"42", R"(42^\circ)", kYes, kNo},
      {"42", R"(42^{\circ})", kYes, kNo},
      {"42", R"(\$42)", kYes, kNo},
      {"42", "42'", kYes, kNo},
      {"42", R"(42\mathrm{th})", kYes, kNo},
      {R"(42\text{ km})", "42", kYes, kYes},
      {R"(42\text{ km})", R"(42\text{ m})", kYes, kNo},
      {R"(42\text{ km})", R"(42\text{ kilometers})", kYes, kYes},
      {R"(42\text{ km})", R"(42\,\mathrm{km})", kYes, kYes},
      {R"(42\text{ cm}^2)", R"(42\text{ cm})", kYes, kNo},
      {R"(42\text{ cm}^2)", R"(42\text{ square centimetres})", kYes, kYes},
      {R"(\$42)", R"(42\text{ dollars})", kYes, kYes},
      {R"(42^\circ)", R"(42\text{ degrees})", kYes, kYes},
      {R"(x=\text{east})", R"(x=\text{west})", kYes, kNo},
      {R"(x=\text{east})", "x=", kYes, kNo},
      {"2x+3t", "2x+3", kYes, kNo},
      // bases
      {"42", "42_7", kYes, kNo},
      {"42", "42_{7}", kYes, kNo},
      {"42", "42_7+0", kYes, kNo},
      {"42", "42_{10}", kYes, kYes},
      {"42_7", "42_7", kYes, kYes},
      {"42_7", "42_{7}", kYes, kYes},
      {"42_7", "42", kYes, kYes},
      {"42_7", "42_8", kYes, kNo},
  };
  return cases;
}

bool is_equal(const std::string& gold, const std::string& text, bool strict) {
  return compare_here(reward_comparison(gold, text, strict)).verdict == MathVerdict::kEqual;
}

TEST(StrictEquality, refuses_what_the_reference_forgives) {
  std::size_t refused = 0;
  for (const StrictCase& c : strict_cases()) {
    const std::string gold = std::string("$") + c.gold + "$";
    const std::string text = std::string("\\boxed{") + c.answer + "}";
    EXPECT_EQ(is_equal(gold, text, false), c.by_default) << "default: gold " << c.gold << ", answer " << c.answer;
    EXPECT_EQ(is_equal(gold, text, true), c.strictly) << "strict: gold " << c.gold << ", answer " << c.answer;
    EXPECT_TRUE(c.by_default || !c.strictly) << c.gold << ", " << c.answer;
    refused += c.by_default && !c.strictly ? 1 : 0;
  }
  EXPECT_GE(strict_cases().size(), 60u);
  EXPECT_GE(refused, 45u);
}

TEST(StrictEquality, a_plain_gold_keeps_its_unit) {
  for (const char* gold : {"42 km", "42 kilometers", "$42$ km."}) {
    EXPECT_TRUE(is_equal(gold, "\\boxed{42}", true)) << gold;
  }
  EXPECT_TRUE(is_equal("42 km", "\\boxed{42 \\text{ km}}", true));
  EXPECT_FALSE(is_equal("42 km", "\\boxed{42 \\text{ m}}", true));
  EXPECT_TRUE(is_equal("42_7", "\\boxed{42_7}", true));
  EXPECT_FALSE(is_equal("42_7", "\\boxed{42_8}", true));
}

// For all pairs whose default verdicts reference_test.cpp checks: strict equality accepts no pair that the default
// rules refuse, and it accepts answers that are written like the gold answer.
TEST(StrictEquality, never_accepts_what_the_default_refuses) {
  std::size_t accepted = 0;
  std::size_t refused = 0;
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const char* file : {"math_equality.jsonl", "math_pairs.jsonl"}) {
    std::istringstream lines(read_file(test::fixture(std::string("math_equality/") + file)));
    for (std::string line; std::getline(lines, line);) {
      const Json row = parse_json(line, file);
      pairs.emplace_back(row["gold"].get<std::string>(), row["text"].get<std::string>());
    }
  }
  for (const StrictCase& gold : strict_cases()) {
    for (const StrictCase& c : strict_cases())
      pairs.emplace_back(std::string("$") + gold.gold + "$", std::string("\\boxed{") + c.answer + "}");
  }
  for (const auto& [gold, text] : pairs) {
    const MathVerdict loose = compare_here(reward_comparison(gold, text)).verdict;
    const MathVerdict strict = compare_here(reward_comparison(gold, text, true)).verdict;
    EXPECT_TRUE(strict != MathVerdict::kEqual || loose == MathVerdict::kEqual) << gold << "\n" << text;
    EXPECT_EQ(strict == MathVerdict::kNoGold, loose == MathVerdict::kNoGold) << gold;
    accepted += strict == MathVerdict::kEqual ? 1 : 0;
    refused += strict != loose ? 1 : 0;
  }
  EXPECT_GT(accepted, 500u);
  EXPECT_GT(refused, 50u);
}

TEST(StrictEquality, every_answer_equals_itself) {
  for (const StrictCase& c : strict_cases()) {
    for (const char* text : {c.gold, c.answer}) {
      const std::string boxed = std::string("\\boxed{") + text + "}";
      if (compare_here(reward_comparison("$" + std::string(text) + "$", boxed)).verdict != MathVerdict::kEqual)
        continue;
      EXPECT_TRUE(is_equal("$" + std::string(text) + "$", boxed, true)) << text;
    }
  }
}

std::optional<double> accuracy(const std::string& text, const RewardOptions& options) {
  RewardRegistry all;
  register_all_reward(all);
  const Json row = {{"solution", "42"}};
  const RewardInput input{.completion = text, .row = &row};
  return all.make("accuracy", options).score({&input, 1}).at(0);
}

TEST(StrictEquality, a_box_in_thoughts_is_no_answer) {
  const RewardOptions strict = test::with_keys({"--strict_equality"});
  const RewardOptions prefilled = test::with_keys({"--strict_equality"}, true);
  const struct {
    const char* text;
    double by_default, strictly, behind_prefill;
  } cases[] = {
      {"\\boxed{42}", 1, 1, 0},
      {"<think>\n\\boxed{42}\n</think>\n<answer>\nDone.\n</answer>", 1, 0, 0},
      {"<think>\n\\boxed{42}", 1, 0, 0},
      {"<think>\na\n</think>\n<think>\n\\boxed{42}", 1, 0, 0},
      {"<think>\n\\boxed{41}\n</think>\n\\boxed{42}", 1, 1, 1},
      {"\\boxed{41}\n</think>\n\\boxed{42}", 1, 1, 1},
      {"<think>\n\\boxed{42}\n</think>\n\\boxed{41}", 0, 0, 0},
      {"</think>\\boxed{42}<think>", 1, 1, 1},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(accuracy(c.text, {}), c.by_default) << c.text;
    EXPECT_EQ(accuracy(c.text, strict), c.strictly) << c.text;
    EXPECT_EQ(accuracy(c.text, prefilled), c.behind_prefill) << c.text;
  }
}

}  // namespace
}  // namespace hone
