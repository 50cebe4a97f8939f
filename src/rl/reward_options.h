// From a recipe's keys to what rewards read.
#pragma once

#include <string>
#include <vector>

#include "rl/options.h"

namespace hone {

// `think_prefilled`: the prompts end in "<think>\n".
[[nodiscard]] RewardOptions reward_options(const RewardKeys& keys, bool think_prefilled);
// The rewards that reward_funcs names, the user's own among them. Programs of completions must not be able to read
// `hidden`. Throws Error.
[[nodiscard]] std::vector<Reward> rewards_of(const RewardKeys& keys, bool think_prefilled,
                                             std::vector<std::string> hidden);
// What holds the answers of a run, and what it writes: `hidden` of rewards_of.
[[nodiscard]] std::vector<std::string> private_paths(const GrpoOptions& options);

}  // namespace hone
