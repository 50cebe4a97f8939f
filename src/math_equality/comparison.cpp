#include "math_equality/comparison.h"

#include <utility>

#include "core/digest.h"
#include "math_equality/work.h"

namespace hone {

MathComparison reward_comparison(std::string_view gold, std::string_view text, bool strict) {
  return {gold, text, gold_rule(), answer_rule(), false, strict};
}

std::optional<MathAnswer> read_gold(const MathComparison& comparison) {
  const WorkLimit limit(kMostWork);
  try {
    auto found = parse_math(comparison.gold, comparison.gold_rule);
    if (found || !comparison.bare_gold) return found;
    return parse_math("$" + std::string(comparison.gold) + "$", comparison.gold_rule);
  } catch (const BeyondWork&) {
    return std::nullopt;
  }
}

MathOutcome compare_with(const std::optional<MathAnswer>& gold, const MathComparison& comparison) {
  if (!gold) return {MathVerdict::kNoGold, {}};
  const WorkLimit limit(kMostWork);
  std::string extracted;
  try {
    const auto answer = parse_math(comparison.text, comparison.text_rule);
    if (!answer) return {MathVerdict::kDifferent, {}};
    extracted = answer->text;
    const bool same = comparison.strict ? strictly_equal(*gold, *answer) : equal(*gold, *answer);
    return {same ? MathVerdict::kEqual : MathVerdict::kDifferent, std::move(extracted)};
  } catch (const BeyondWork&) {
    return {MathVerdict::kTooLong, std::move(extracted)};
  }
}

MathOutcome compare_here(const MathComparison& comparison) { return compare_with(read_gold(comparison), comparison); }

std::string fingerprint(const MathComparison& comparison) {
  Fingerprint all;
  all.add(comparison.gold);
  all.add(comparison.text);
  for (const AnswerRule& rule : {comparison.gold_rule, comparison.text_rule}) {
    all.add(rule.extraction.boxed_priority);
    for (const bool flag : {rule.extraction.expressions, rule.extraction.unanchored, rule.first_match_only, rule.repair,
                            rule.unit_in_prose})
      all.add(static_cast<std::int64_t>(flag));
  }
  all.add(static_cast<std::int64_t>(comparison.bare_gold));
  all.add(static_cast<std::int64_t>(comparison.strict));
  return all.finish();
}

}  // namespace hone
