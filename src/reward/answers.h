// The judgement that accuracy, length and cosine share.
#pragma once

#include <string_view>

#include "reward/reward.h"

namespace hone {

enum class Verdict { correct, wrong, no_gold };

// The gold is the row's column `solution`, else `answer` (a string, or a number); in both, what stands behind the last
// "####" where there is one, as in gsm8k. no_gold: it does not parse. Throws Error where the row has neither column or
// one of another type.
[[nodiscard]] Verdict judge_answer(const RewardInput& input, const RewardOptions& options);

// Behind the last "####" on a line's beginning; the text itself where there is none.
[[nodiscard]] std::string_view gold_text(std::string_view solution);

}  // namespace hone
