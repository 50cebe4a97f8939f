// Judges whether completions contain the correct mathematical answer, for the rewards accuracy, length and cosine.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/options.h"
#include "math_equality/workers.h"
#include "reward/reward.h"

namespace hone {

struct AnswerKeys {
  bool strip_thoughts = false;   // judge only the text after the last </think>
  bool strict_equality = false;  // use stricter rules than Math-Verify; the text of thoughts never counts

  template <class Visitor>
  void fields(Visitor& v) {
    v("strip_thoughts", strip_thoughts, "accuracy: judge only what follows the last </think>");
    v("strict_equality", strict_equality, kStrictEqualityHelp);
  }
};

enum class Verdict {
  kCorrect,
  kWrong,   // a different answer, or a comparison that exceeded its work limit, which is logged
  kNoGold,  // the gold answer does not parse
  kFailed,  // the comparison failed, which is logged
};

// Returns one verdict per completion. The gold answer is in the row's column `solution`, or `answer` if that is missing
// or null; it is a string or a number, reduced by gold_text(). `options.keys` must contain AnswerKeys. Throws Error if
// a row has neither column or if the column has another type.
[[nodiscard]] std::vector<Verdict> judge_answers(std::span<const RewardInput> batch, const RewardOptions& options,
                                                 MathWorkers& workers);

// Returns the text after the last "####" at the beginning of a line, as in gsm8k, or the whole text if there is none.
[[nodiscard]] std::string_view gold_text(std::string_view solution);

}  // namespace hone
