// Compares the answer in a completion with a gold answer: the request of a reward or an evaluation, and its outcome.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "math_equality/answer.h"

namespace hone {

// Request for a comparison. The caller owns the texts.
struct MathComparison {
  std::string_view gold;
  std::string_view text;  // the completion
  AnswerRule gold_rule;
  AnswerRule text_rule;
  bool bare_gold = false;  // if the gold text contains no match, read all of it as LaTeX
  bool strict = false;     // compare with strictly_equal() instead of equal()
};

enum class MathVerdict : std::uint8_t {
  kDifferent,
  kEqual,
  kNoGold,   // the gold text contains no answer
  kTooLong,  // the comparison exceeded its limit on work or time
  kFailed,   // the worker process died
};

struct MathOutcome {
  MathVerdict verdict = MathVerdict::kFailed;
  std::string extracted;  // answer that was found in the text; empty if there is none
};

// Limit on the work of one comparison, in units of WorkLimit. It covers parsing the answer and comparing every pair of
// elements of two sets, and the count is the same on every machine. Parsing a gold answer has the same limit; a gold
// answer that exceeds it counts as one that does not parse.
inline constexpr std::int64_t kMostWork = 4'000'000;

// Returns a comparison with the rules of open-r1.
[[nodiscard]] MathComparison reward_comparison(std::string_view gold, std::string_view text, bool strict = false);

// Parses the gold answer of a comparison; nothing if the text contains none.
[[nodiscard]] std::optional<MathAnswer> read_gold(const MathComparison& comparison);
// Compare in this process, without a limit on time. compare_with() uses a gold answer that is already parsed. They
// throw std::bad_alloc only.
[[nodiscard]] MathOutcome compare_with(const std::optional<MathAnswer>& gold, const MathComparison& comparison);
[[nodiscard]] MathOutcome compare_here(const MathComparison& comparison);
// Returns a hash of the texts and rules, which identifies the comparison.
[[nodiscard]] std::string fingerprint(const MathComparison& comparison);

}  // namespace hone
