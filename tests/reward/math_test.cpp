// Golds and answers against Math-Verify 0.9 (fixtures/reward/make_math_equality.py).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "core/files.h"
#include "core/json.h"
#include "reward/math/answer.h"
#include "support/paths.h"

namespace hone {
namespace {

std::optional<double> score(const std::string& gold_text, const std::string& completion) {
  const auto gold = parse_gold(gold_text);
  if (!gold) return std::nullopt;
  const auto answer = parse_answer(completion);
  return answer && equal(*gold, *answer) ? 1.0 : 0.0;
}

std::string shown(std::optional<double> value) { return value ? std::to_string(*value) : "none"; }

TEST(MathEquality, agrees_with_the_reference) {
  std::istringstream lines(read_file(test::fixture("reward/math_equality.jsonl")));
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json row = parse_json(line, "math_equality.jsonl");
    const auto gold = row["gold"].get<std::string>();
    const auto text = row["text"].get<std::string>();
    const auto expected = row["score"].is_null() ? std::nullopt : std::optional(row["score"].get<double>());
    EXPECT_EQ(score(gold, text), expected) << "gold " << gold << "\ntext " << text << "\nreference "
                                           << shown(expected) << ", hone " << shown(score(gold, text));
  }
  EXPECT_GE(count, 1000u);
}

}  // namespace
}  // namespace hone
