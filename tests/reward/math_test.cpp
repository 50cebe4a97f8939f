// Golds and answers against Math-Verify 0.9 (fixtures/reward/make_math_equality.py).
#include <gtest/gtest.h>

#include <map>
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

// Where hone decides otherwise than the reference today, and why. (gold, completion) -> reason.
const std::map<std::pair<std::string, std::string>, std::string>& known_differences() {
  static const std::map<std::pair<std::string, std::string>, std::string> differences = {
      {{R"($\sin^2 x + \cos^2 x$)", R"(\boxed{1})"}, "functions are text: no identities"},
      {{R"($\log_2 8$)", R"(\boxed{3})"}, "functions are text: no values"},
      {{R"($|{-3}|$)", R"(\boxed{3})"}, "absolute values are text"},
      {{R"($x > 3$)", R"(\boxed{3 < x})"}, "inequalities are text: not turned round"},
      {{R"($x > 3$)", R"(\boxed{(3,\infty)})"}, "inequalities are text: not solved"},
      {{R"($\sqrt{3+2\sqrt{2}}$)", R"(\boxed{1+\sqrt{2}})"}, "roots of sums are text: not denested"},
      {{R"($2^{100} \cdot 3^{100}$)", R"(\boxed{6^{100}})"}, "more than 38 digits: text"},
  };
  return differences;
}

TEST(MathEquality, agrees_with_the_reference) {
  std::istringstream lines(read_file(test::fixture("reward/math_equality.jsonl")));
  std::size_t count = 0;
  std::size_t different = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json row = parse_json(line, "math_equality.jsonl");
    const auto gold = row["gold"].get<std::string>();
    const auto text = row["text"].get<std::string>();
    const auto expected = row["score"].is_null() ? std::nullopt : std::optional(row["score"].get<double>());
    const bool known = known_differences().contains({gold, text});
    different += known ? 1 : 0;
    EXPECT_EQ(score(gold, text) == expected, !known) << "gold " << gold << "\ntext " << text << "\nreference "
                                                     << shown(expected) << ", hone " << shown(score(gold, text));
  }
  EXPECT_GE(count, 1000u);
  EXPECT_EQ(different, known_differences().size()) << "a known difference is not among the cases";
}

}  // namespace
}  // namespace hone
