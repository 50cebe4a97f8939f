// The judgement that code and binary_code share.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "reward/reward.h"

namespace hone {

// The share of test cases that each completion's program passes: the last ```python block, run in the sandbox on every
// case's `input`, 5 s each. The cases are the row's verification_info.test_cases, [{input, output}, ...]. Nothing where
// there are no cases, or where the program could not be run, which is logged; 0 where there is no block.
using CodeJudge = std::function<std::vector<std::optional<double>>(std::span<const RewardInput>)>;

// Throws Error where the sandbox that the options ask for, or a Python in it, cannot be had; what it returns throws
// Error where a row lacks the column or it is of another form.
[[nodiscard]] CodeJudge make_code_judge(const RewardOptions& options);

// What stands in the text's last "```LANGUAGE\n ... ```"; nothing where there is none.
[[nodiscard]] std::optional<std::string_view> last_code_block(std::string_view text, std::string_view language);

}  // namespace hone
