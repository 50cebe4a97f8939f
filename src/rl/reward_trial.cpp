#include "rl/reward_trial.h"

#include <string>
#include <vector>

#include "core/error.h"
#include "core/json_value.h"
#include "reward/user/user_reward.h"

namespace hone {
namespace {

constexpr const char* kPrograms = "\n```python\nprint(0)\n```\n\n```cpp\nint main() { return 0; }\n```\n";

// Returns a made-up completion. Completions differ by `number`, because a reward may divide by their deviation.
std::string made_up(std::int64_t number) {
  return text_of("<think>\nThis completion is made up, to try the rewards before the first step: ", number,
                 ".\n</think>\n<answer>\n\\boxed{", number, "}\n</answer>\n", number == 0 ? kPrograms : "");
}

}  // namespace

void try_rewards(std::span<const Reward> rewards, const RewardTrial& trial) {
  std::vector<std::string> texts;
  std::vector<std::vector<TokenId>> ids;
  ids.reserve(static_cast<std::size_t>(trial.completions));
  for (std::int64_t i = 0; i < trial.completions; ++i) {
    texts.push_back(made_up(i));
    ids.push_back(trial.tokenizer != nullptr ? trial.tokenizer->encode(texts.back()) : std::vector<TokenId>());
  }
  std::vector<RewardInput> inputs;
  inputs.reserve(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    inputs.push_back({.completion = texts[i],
                      .row = &trial.row,
                      .group = 0,
                      .token_count = static_cast<std::int64_t>(ids[i].empty() ? texts[i].size() / 4 : ids[i].size()),
                      .ended = true,
                      .prompt = &trial.question,
                      .completion_ids = ids[i],
                      .progress = {.step = 0, .total_steps = trial.total_steps, .epoch = 0}});
  }
  for (const Reward& reward : rewards) {
    try {
      (void)reward.score(inputs);
    } catch (const Error& error) {
      // The author of a user reward needs to know which input caused the error.
      if (is_user_reward(reward.name)) {
        throw Error(text_of(error.what(), "; it was tried on the first prompt with made-up completions"));
      }
      throw;
    }
  }
}

}  // namespace hone
