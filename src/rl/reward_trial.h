// Rewards that are tried before a run begins, so that what would end it at its first step ends it before.
#pragma once

#include <cstdint>
#include <span>

#include "core/json.h"
#include "reward/reward.h"
#include "text/tokenizer.h"

namespace hone {

struct RewardTrial {
  const Json& row;                       // of the data
  const Json& question;                  // question_in(row)
  std::int64_t completions = 1;          // a group's
  const Tokenizer* tokenizer = nullptr;  // null: completions have no token ids
  std::int64_t total_steps = 0;
};
// Calls each reward once with a group of completions that are made up: thoughts, an answer and, in the first, programs.
// What they earn is not looked at. Throws Error where a reward does.
void try_rewards(std::span<const Reward> rewards, const RewardTrial& trial);

}  // namespace hone
