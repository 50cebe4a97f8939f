// Runs the Python programs in completions on test cases, for the rewards code and binary_code.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "reward/reward.h"

namespace hone {

// Function that returns the fraction of test cases that each completion's program passes. The program is the last
// ```python block of the completion; it runs in the sandbox once per case, with `input` on standard input and 5 s of
// time. The cases are verification_info.test_cases of the row, [{input, output}, ...]. Returns 0 if there is no block,
// and no value if there are no cases or if the program could not be run, which is logged.
using CodeJudge = std::function<std::vector<std::optional<double>>(std::span<const RewardInput>)>;

// Throws Error if the sandbox that the options select does not work or contains no Python. The returned function throws
// Error if a row lacks the column or if the column has another form.
[[nodiscard]] CodeJudge make_code_judge(const RewardOptions& options);

// Returns the content of the last block "```LANGUAGE\n ... ```" of the text; nothing if there is none.
[[nodiscard]] std::optional<std::string_view> last_code_block(std::string_view text, std::string_view language);

}  // namespace hone
