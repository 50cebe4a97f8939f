// Builds the rewards of a run from the keys of its recipe.
#pragma once

#include <string>
#include <vector>

#include "rl/options.h"

namespace hone {

// Returns what rewards are made with. think_prefilled: the prompts end in "<think>\n", and completions lack it.
[[nodiscard]] RewardOptions reward_options(const RewardKeys& keys, bool think_prefilled);
// Makes the rewards that reward_funcs names, including the user's. Programs in completions cannot read the files and
// folders `hidden`. Throws Error if a reward is unknown or cannot be made.
[[nodiscard]] std::vector<Reward> rewards_of(const RewardKeys& keys, bool think_prefilled,
                                             std::vector<std::string> hidden);
// Returns the data sets, which hold the answers, and the output folder of a run: `hidden` of rewards_of.
[[nodiscard]] std::vector<std::string> hidden_paths(const GrpoOptions& options);

}  // namespace hone
