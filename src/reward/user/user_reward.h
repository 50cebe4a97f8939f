// Rewards that the user provides: an executable, a shared object (include/hone_reward.h) or a Python function
// (python_reward.h).
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "reward/reward.h"

namespace hone {

// Returns true if a name in reward_funcs is a path, which contains a slash, or names a Python function.
[[nodiscard]] bool is_user_reward(std::string_view name);

// Creates a reward from an executable or a shared object (a path that ends in ".so"). Its name is the path, and its
// metric's name is the file name without the last extension. Names of Python functions are passed to
// make_python_reward().
//
// Each call of the reward starts the executable, or a process of hone that loads the shared object, and writes one line
// with a JSON object per completion, {completion, row, group, token_count, ended}, to its standard input. It must print
// one line per completion: a finite number or null. Throws Error if the file is neither executable nor a shared object.
// A call throws Error if the process fails, or if it does not print all lines correctly within `time_limit`; the last
// lines of its standard error are printed first.
[[nodiscard]] Reward make_user_reward(const std::string& path, std::chrono::milliseconds time_limit);

}  // namespace hone
