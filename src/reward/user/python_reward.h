// Reward functions in Python, with the interface of TRL's GRPOTrainer:
//
//   def polite(completions, answer, **kwargs):
//       return [1.0 if "please" in completion else None for completion in completions]
//
// Source of the arguments: GRPOTrainer._calculate_rewards of TRL 0.18 to 1.9.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "reward/reward.h"

namespace hone {

// Python script of the process that runs the function (python_host.cpp).
extern const char* const kPythonHost;

// Returns true if a name in reward_funcs names a Python function: "rewards.py:polite"; "rewards.py", which means its
// only function with a parameter `completions`; or "package.module.polite", which is imported from the working
// directory. An executable file "rewards.py" that begins with "#!" is a program (user_reward.h) instead.
[[nodiscard]] bool is_python_reward(std::string_view name);

// Starts `interpreter`, found in PATH, imports the module and finds the function. The process lives as long as the
// Reward. A call of the reward sends a batch and waits for the list of scores.
//
// The function gets these keyword arguments, as far as its signature accepts them: prompts; completions (texts if the
// prompt is a text, otherwise lists of messages); completion_ids; trainer_state with global_step, max_steps and epoch;
// and each column of the rows as a list. An async function is awaited.
//
// Throws Error if there is no such interpreter, file or function. A call throws Error if the function raises, if the
// process ends, if the result is not one finite number or None per completion, or if the call takes longer than
// `time_limit`; the last lines of standard error are printed first. The import may take `time_limit`, or two minutes if
// that is longer. Throws Interrupted after Ctrl+C.
[[nodiscard]] Reward make_python_reward(const std::string& name, std::chrono::milliseconds time_limit,
                                        std::string_view interpreter = "python3");

}  // namespace hone
