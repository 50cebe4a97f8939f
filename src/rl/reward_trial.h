// Tries rewards before a run begins, so that an error in a reward is reported before the first step rather than after
// the first rollout.
#pragma once

#include <cstdint>
#include <span>

#include "core/json.h"
#include "reward/reward.h"
#include "text/tokenizer.h"

namespace hone {

struct RewardTrial {
  const Json& row;                       // row of the training data
  const Json& question;                  // question_in(row)
  std::int64_t completions = 1;          // completions of the group
  const Tokenizer* tokenizer = nullptr;  // null: completions have no token ids
  std::int64_t total_steps = 0;
};
// Calls each reward once with a group of made-up completions: thoughts, an answer and, in the first one, programs. The
// scores are ignored. Throws Error if a reward does.
void try_rewards(std::span<const Reward> rewards, const RewardTrial& trial);

}  // namespace hone
