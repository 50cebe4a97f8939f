// Rewards that a user brings: an executable, a shared object (include/hone_reward.h), or a Python function
// (python_reward.h), named by its path.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "reward/reward.h"

namespace hone {

// Whether a name in reward_funcs is a path, which holds a slash, or names a Python function.
[[nodiscard]] bool is_user_reward(std::string_view name);

// The reward's name is the path, its metric's the file's name without what follows a dot. Each call starts the
// executable anew, or a process of hone's that loads the shared object (a name that ends in ".so"), gives it one JSON
// object a line for each completion, {completion, row, group, token_count, ended}, and takes one line for each: a
// finite number or null. Throws Error where the file is none of the two, and in a call where it does not answer all
// lines within `time_limit`, answers something else, or fails; the tail of its standard error is printed first. A
// Python function is as make_python_reward says.
[[nodiscard]] Reward make_user_reward(const std::string& path, std::chrono::milliseconds time_limit);

}  // namespace hone
