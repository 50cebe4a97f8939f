// Reward functions in Python, as TRL's GRPOTrainer takes them:
//
//   def polite(completions, answer, **kwargs):
//       return [1.0 if "please" in completion else None for completion in completions]
//
// Source of what is passed: GRPOTrainer._calculate_rewards of TRL 0.18 to 1.9.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "reward/reward.h"

namespace hone {

// The program of the process that holds the function (python_host.cpp).
extern const char* const kPythonHost;

// Whether a name in reward_funcs is of a Python function: "rewards.py:polite" and "rewards.py" (its only function with
// the parameter completions), or "package.module.polite", imported from the folder that hone is started in. An
// executable of that name that begins with "#!" is a program (user_reward.h), not a module.
[[nodiscard]] bool is_python_reward(std::string_view name);

// Starts `interpreter` (found in PATH), imports the module and finds the function; the process stays until the Reward
// goes. A call sends a batch and waits for the list of scores. The function gets prompts, completions (texts where the
// prompt is one, else lists of messages), completion_ids, trainer_state (global_step, max_steps, epoch) and the columns
// of the rows as lists, as far as its signature takes them; an async function is awaited. Throws Error where there is
// no interpreter, no function, where it raises, ends, answers anything but a finite number or None for each completion,
// or takes longer than `time_limit` (an import: two minutes, where that is more): the tail of what it said on standard
// error is printed first. Throws Interrupted.
[[nodiscard]] Reward make_python_reward(const std::string& name, std::chrono::milliseconds time_limit,
                                        std::string_view interpreter = "python3");

}  // namespace hone
