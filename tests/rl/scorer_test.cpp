// Rewards of finished completions are computed while others are generated. The tests count what overlaps; they measure
// no time.
#include "rl/scorer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>

#include "core/error.h"
#include "core/random.h"
#include "rl/rollout.h"
#include "rl/small_run.h"
#include "support/models.h"

namespace hone::test {
namespace {

constexpr std::int64_t kScriptedGenerations = 2;
const std::vector<std::uint32_t> kScriptedPrompts{0, 1, 2};
constexpr std::size_t kScripted = 6;
constexpr std::chrono::minutes kPatience{5};  // after which a test fails instead of waiting on

// Counts that a source of completions and a reward wait for.
class Script {
 public:
  void add(std::size_t& count, std::size_t more) {
    const std::lock_guard lock(mutex_);
    count += more;
    changed_.notify_all();
  }
  bool wait(const std::size_t& count, std::size_t least) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return count >= least; });
  }
  std::size_t now(const std::size_t& count) {
    const std::lock_guard lock(mutex_);
    return count;
  }
  std::size_t generated = 0;
  std::size_t begun = 0;   // completions that the reward has been given
  std::size_t scored = 0;  // completions that it has scored

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

Completion completion_of(std::size_t i) {
  Completion completion;
  completion.text = std::string(i + 1, 'a');
  completion.tokens = std::vector<TokenId>(i + 1, 5);
  completion.logps = std::vector<float>(i + 1, -1.0f);
  completion.finish_reason = i % 2 == 0 ? FinishReason::kStop : FinishReason::kLength;
  return completion;
}

// Finishes completions in the given order and calls `between` after each.
class ScriptedSource final : public RolloutSource {
 public:
  ScriptedSource(std::vector<std::size_t> order, std::function<void(std::size_t finished)> between)
      : order_(std::move(order)), between_(std::move(between)) {}
  std::vector<Completion> generate(std::span<const Request> requests, const OnFinished& on_finished) override {
    std::vector<Completion> completions(requests.size());
    for (std::size_t n = 0; n < order_.size(); ++n) {
      completions[order_[n]] = completion_of(order_[n]);
      on_finished(order_[n], completions[order_[n]]);
      between_(n + 1);
    }
    return completions;
  }

 private:
  std::vector<std::size_t> order_;
  std::function<void(std::size_t)> between_;
};

std::vector<std::size_t> in_order() {
  std::vector<std::size_t> order(kScripted);
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

Rollout rolled_out(RolloutSource& source, const std::vector<Reward>& rewards) {
  RolloutOptions options;
  options.num_generations = kScriptedGenerations;
  options.reward_weights.assign(rewards.size(), 1.0);
  const PromptSet prompts = random_prompts(3, 20, 1);
  return roll_out(source, letter_tokenizer(1),
                  {.prompts = prompts, .chosen = kScriptedPrompts, .seed_of = [](std::size_t i) { return i; }}, rewards,
                  options);
}

// Scores by the text, the row and the place in the group's row, each of which must be that of the completion.
std::optional<double> judge(const RewardInput& input) {
  if (input.token_count == 4) return std::nullopt;
  return static_cast<double>(input.completion.size()) + 100.0 * input.row->at("number").get<double>() +
         (input.ended ? 0.5 : 0.0);
}

TEST(Scorer, JudgesCompletionsWhileOthersAreGenerated) {
  Script script;
  std::vector<std::size_t> scored_when_generated;  // completions that were scored when so many were generated
  ScriptedSource source(in_order(), [&](std::size_t finished) {
    script.add(script.generated, 1);
    // The second completion takes until the reward has begun with the first, the fifth until it has scored it.
    if (finished < kScripted) {
      EXPECT_TRUE(script.wait(script.begun, 1));
    }
    if (finished == 4) {
      EXPECT_TRUE(script.wait(script.scored, 1));
    }
    scored_when_generated.push_back(script.now(script.scored));
  });
  std::size_t most_generated_while_judging = 0;
  const Reward slow{"slow", "slow_reward",
                    [&](std::span<const RewardInput> batch) {
                      const bool first = script.begun == 0;
                      script.add(script.begun, batch.size());
                      // The reward takes until three more completions have been generated.
                      if (first) {
                        EXPECT_TRUE(script.wait(script.generated, 4));
                        most_generated_while_judging = script.now(script.generated);
                      }
                      RewardScores scores;
                      for (const RewardInput& input : batch) scores.push_back(judge(input));
                      script.add(script.scored, batch.size());
                      return scores;
                    },
                    RewardScope::kCompletion};
  const Rollout rollout = rolled_out(source, {slow});
  EXPECT_GE(most_generated_while_judging, 4U);
  ASSERT_EQ(scored_when_generated.size(), kScripted);
  EXPECT_EQ(scored_when_generated[2], 0U);
  EXPECT_GE(scored_when_generated[3], 1U);
  EXPECT_EQ(script.scored, kScripted);
  EXPECT_EQ(rollout.scores[0][3], std::nullopt);
  EXPECT_EQ(rollout.scores[0][4], 205.5);
}

TEST(Scorer, ScoresDependOnNoOrder) {
  std::int64_t batches = 0;
  const std::vector<Reward> rewards{{"whole", "whole_reward",
                                     [&](std::span<const RewardInput> batch) {
                                       ++batches;
                                       EXPECT_EQ(batch.size(), kScripted);
                                       RewardScores scores;  // depend on all completions
                                       for (const RewardInput& input : batch)
                                         scores.emplace_back(static_cast<double>(input.completion.size()) -
                                                             static_cast<double>(batch.back().completion.size()));
                                       return scores;
                                     }},
                                    {"one", "one_reward",
                                     [](std::span<const RewardInput> batch) {
                                       RewardScores scores;
                                       for (const RewardInput& input : batch) scores.push_back(judge(input));
                                       return scores;
                                     },
                                     RewardScope::kCompletion}};
  ScriptedSource first(in_order(), [](std::size_t) {});
  const Rollout expected = rolled_out(first, rewards);
  EXPECT_EQ(batches, 1);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::vector<std::size_t> order = in_order();
    const RandomStream random(seed, "order");
    for (std::size_t i = kScripted - 1; i > 0; --i) std::swap(order[i], order[random.below(i, i + 1)]);
    ScriptedSource source(order, [](std::size_t) {});
    const Rollout rollout = rolled_out(source, rewards);
    EXPECT_EQ(rollout.scores, expected.scores);
    EXPECT_EQ(rollout.advantages.values, expected.advantages.values);
    for (std::size_t i = 0; i < kScripted; ++i) {
      EXPECT_EQ(rollout.judged[i].completion, expected.judged[i].completion);
      EXPECT_EQ(rollout.judged[i].rewards, expected.judged[i].rewards);
      EXPECT_EQ(rollout.samples[i].completion, expected.samples[i].completion);
    }
  }
}

TEST(Scorer, FailuresOfRewardsAndOfGenerationEndTheRollout) {
  const Reward failing{"failing", "failing_reward",
                       [](std::span<const RewardInput>) -> RewardScores { throw Error("failing", "has no column"); },
                       RewardScope::kCompletion};
  ScriptedSource source(in_order(), [](std::size_t) {});
  EXPECT_THROW((void)rolled_out(source, {failing}), Error);
  Script script;
  const Reward waits{"waits", "waits_reward",
                     [&](std::span<const RewardInput> batch) {
                       script.add(script.begun, batch.size());
                       return RewardScores(batch.size(), 1.0);
                     },
                     RewardScope::kCompletion};
  ScriptedSource breaks(in_order(), [&](std::size_t) {
    EXPECT_TRUE(script.wait(script.begun, 1));
    throw Error("the server", "does not answer");
  });
  EXPECT_THROW((void)rolled_out(breaks, {waits}), Error);
}

}  // namespace
}  // namespace hone::test
