// Keys of a recipe reach the rewards that use them.
#include <gtest/gtest.h>

#include "core/json_value.h"
#include "rl/reward_options.h"
#include "support/option_flags.h"

namespace hone {
namespace {

TEST(RewardKeys, strict_equality_reaches_every_reward_that_compares) {
  const Json row = {{"answer", "42"}};
  const RewardInput inputs[] = {{.completion = "\\boxed{41=42}", .row = &row},
                                {.completion = "\\boxed{x=40+2=42}", .row = &row}};
  RewardKeys keys{.reward_funcs = {"accuracy", "cosine", "length"}};
  for (const Reward& reward : rewards_of(keys, false, {})) EXPECT_GT(reward.score(inputs).at(0), 0.0) << reward.name;
  keys = test::with_flags(keys, {"--strict_equality"});
  for (const Reward& reward : rewards_of(keys, false, {})) {
    const RewardScores scores = reward.score(inputs);
    EXPECT_LE(scores.at(0), 0.0) << reward.name;
    if (reward.name != "length") {
      EXPECT_GT(scores.at(1), 0.0) << reward.name;
    }
  }
}

}  // namespace
}  // namespace hone
