#include "reward/math/comparison.h"

namespace hone {

MathComparison reward_comparison(std::string_view gold, std::string_view text) {
  return {gold, text, gold_rule(), answer_rule(), false};
}

std::optional<MathAnswer> read_gold(const MathComparison& comparison) {
  auto found = parse_math(comparison.gold, comparison.gold_rule);
  if (found || !comparison.bare_gold) return found;
  return parse_math("$" + std::string(comparison.gold) + "$", comparison.gold_rule);
}

MathOutcome compare_with(const std::optional<MathAnswer>& gold, const MathComparison& comparison) {
  if (!gold) return {MathVerdict::no_gold, {}};
  const auto answer = parse_math(comparison.text, comparison.text_rule);
  if (!answer) return {MathVerdict::different, {}};
  return {equal(*gold, *answer) ? MathVerdict::equal : MathVerdict::different, answer->text};
}

MathOutcome compare_here(const MathComparison& comparison) { return compare_with(read_gold(comparison), comparison); }

}  // namespace hone
