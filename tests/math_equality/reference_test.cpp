// Compares the verdicts of hone with those of Math-Verify 0.9 (fixtures/math_equality/make_math_equality.py and
// make_math_pairs.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/json_value.h"
#include "math_equality/answer.h"
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

// Known differences to Math-Verify (docs/math-equality.md): (gold answer, answer) -> reason.
const std::map<std::pair<std::string, std::string>, std::string>& known_differences() {
  static const std::map<std::pair<std::string, std::string>, std::string> differences = {
      {{R"($\frac{1}{3}$)", R"(\frac{0.1}{0.3})"}, "decimals are exact, not floating point"},
      {{R"($\arcsin x + \arccos x$)", R"(\frac{\pi}{2})"},
       "an identity that the simplification of sympy does not find"},
      {{R"($\emptyset$)", R"(\varnothing)"}, "both are the empty set"},
      {{R"($x > 3$)", R"(2x > 6)"}, "the same inequality"},
      {{R"($[-1,1] \cap [0,2]$)", R"([0,1])"}, "intersections are computed"},
  };
  return differences;
}

// Number of cases in the file, and number of differences.
std::pair<std::size_t, std::size_t> check(const std::string& file) {
  std::istringstream lines(read_file(test::fixture("math_equality/" + file)));
  std::size_t count = 0;
  std::size_t different = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json row = parse_json(line, file);
    const auto gold = row["gold"].get<std::string>();
    const auto text = row["text"].get<std::string>();
    const auto expected = row["score"].is_null() ? std::nullopt : std::optional(row["score"].get<double>());
    const bool known = std::ranges::any_of(known_differences(), [&](const auto& entry) {
      const std::string& answer = entry.first.second;
      const std::size_t at = text.find(answer);
      const bool whole = at != std::string::npos && std::string("{$(\n").find(text[at - 1]) != std::string::npos &&
                         std::string("}$\\\n").find(text[at + answer.size()]) != std::string::npos;
      return entry.first.first == gold && whole;
    });
    different += known ? 1 : 0;
    EXPECT_EQ(score(gold, text) == expected, !known) << "gold " << gold << "\ntext " << text << "\nreference "
                                                     << shown(expected) << ", hone " << shown(score(gold, text));
  }
  return {count, different};
}

TEST(MathEquality, agrees_with_the_reference) {
  const auto [count, different] = check("math_equality.jsonl");
  EXPECT_GE(count, 1000u);
  EXPECT_EQ(different, 0u);
}

TEST(MathEquality, agrees_with_the_reference_for_every_kind) {
  const auto [count, different] = check("math_pairs.jsonl");
  EXPECT_GE(count, 500u);
  EXPECT_EQ(different, known_differences().size()) << "a known difference is missing from the cases or occurs twice";
}

}  // namespace
}  // namespace hone
