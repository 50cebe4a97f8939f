// The judgement that accuracy, length and cosine share.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/options.h"
#include "math_equality/workers.h"
#include "reward/reward.h"

namespace hone {

struct AnswerKeys {
  bool strip_thoughts = false;   // only what follows the last </think> counts
  bool strict_equality = false;  // stricter rules than Math-Verify's; thoughts never count

  template <class Visitor>
  void fields(Visitor& v) {
    v("strip_thoughts", strip_thoughts, "accuracy: judge only what follows the last </think>");
    v("strict_equality", strict_equality, kStrictEqualityHelp);
  }
};

enum class Verdict {
  correct,
  wrong,    // also where the comparison took too long, which is logged
  no_gold,  // the gold does not parse
  failed,   // the comparison itself failed, which is logged
};

// One verdict a completion. The gold is the row's column `solution`, else `answer` (a string, or a number); in both,
// what stands behind the last "####" where there is one, as in gsm8k. `options` holds AnswerKeys. Throws Error where a
// row has neither column or one of another type.
[[nodiscard]] std::vector<Verdict> judge_answers(std::span<const RewardInput> batch, const RewardOptions& options,
                                                 MathWorkers& workers);

// Behind the last "####" on a line's beginning; the text itself where there is none.
[[nodiscard]] std::string_view gold_text(std::string_view solution);

}  // namespace hone
