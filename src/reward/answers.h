// The judgement that accuracy, length and cosine share.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "math_equality/workers.h"
#include "reward/reward.h"

namespace hone {

enum class Verdict {
  correct,
  wrong,    // also where the comparison took too long, which is logged
  no_gold,  // the gold does not parse
  failed,   // the comparison itself failed, which is logged
};

// One verdict a completion. The gold is the row's column `solution`, else `answer` (a string, or a number); in both,
// what stands behind the last "####" where there is one, as in gsm8k. Throws Error where a row has neither column or
// one of another type.
[[nodiscard]] std::vector<Verdict> judge_answers(std::span<const RewardInput> batch, const RewardOptions& options,
                                                 MathWorkers& workers);

// Behind the last "####" on a line's beginning; the text itself where there is none.
[[nodiscard]] std::string_view gold_text(std::string_view solution);

}  // namespace hone
