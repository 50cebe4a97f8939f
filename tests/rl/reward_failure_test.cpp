// Rewards that fail before the first step or during a run, and rewards that give no gradient.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "rl/reward_trial.h"
#include "rl/small_run.h"
#include "support/models.h"
#include "support/paths.h"

namespace hone::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Trains and returns standard error, followed by the text of the error.
std::string said_by(GrpoRun run) {
  testing::internal::CaptureStderr();
  std::string error;
  try {
    (void)train(run);
  } catch (const Error& caught) {
    error = caught.what();
  }
  return testing::internal::GetCapturedStderr() + error;
}

TEST(RewardFailure, LeavesACheckpointThatGoesOnBitForBit) {
  const TemporaryDirectory whole;
  const TemporaryDirectory failed;
  GrpoOptions options = small_options(whole.path());
  options.learning_rate = 1e-2;
  options.num_iterations = 2;  // with 3 micro-batches per step, a step begins in the middle of a generation
  options.steps_per_generation = 1;
  options.gradient_accumulation_steps = 3;
  (void)train_rows(options, 5);
  options.output_dir = failed.path().string();
  GrpoRun run = make_run(options, 5);
  int calls = 0;
  const RewardFunction early = run.rewards[0].score;
  run.rewards[0].score = [&](std::span<const RewardInput> batch) {
    if (++calls == 5) throw Error("the reward early", "it raised ValueError");
    return early(batch);
  };
  EXPECT_THAT(said_by(std::move(run)),
              AllOf(HasSubstr("hone: saved step 2 in "), HasSubstr("the reward early: it raised ValueError")));
  EXPECT_TRUE(is_folder(failed.path() / "checkpoint-2"));
  (void)train_rows(options, 5);
  EXPECT_EQ(read_file(whole.path() / "model.safetensors"), read_file(failed.path() / "model.safetensors"));
}

TEST(RewardFailure, RewardsAreToldHowFarTheRunIsAndWhatWasAsked) {
  const TemporaryDirectory directory;
  GrpoRun run = make_run(small_options(directory.path()), 3);
  std::vector<std::int64_t> steps;
  run.rewards[0].score = [&](std::span<const RewardInput> batch) {
    for (const RewardInput& input : batch) {
      EXPECT_EQ(*input.prompt, input.row->at("prompt"));
      EXPECT_EQ(std::ssize(input.completion_ids), input.token_count);
      EXPECT_EQ(input.progress.total_steps, 3);
    }
    steps.push_back(batch[0].progress.step);
    return RewardScores(batch.size(), 1.0);
  };
  (void)train(run);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{0, 1, 2}));
}

TEST(RewardTrial, CallsEachRewardOnAGroupOfTheFirstPrompt) {
  const TemporaryDirectory directory;
  GrpoRun run = make_run(small_options(directory.path()), 3);
  int calls = 0;
  const auto count = [&](std::span<const RewardInput> batch) {
    ++calls;
    EXPECT_EQ(batch.size(), 4u);
    EXPECT_EQ(batch[0].row->at("number"), 0);
    EXPECT_NE(batch[0].completion, batch[1].completion);
    EXPECT_THAT(std::string(batch[0].completion), HasSubstr("```python"));
    EXPECT_EQ(*batch[0].prompt, "prompt 0");
    return RewardScores(batch.size());
  };
  for (Reward& reward : run.rewards) reward.score = count;
  const Json row = run.prompts.row(0);
  const Json question = row.at("prompt");
  try_rewards(run.rewards, {.row = row, .question = question, .completions = 4});
  EXPECT_EQ(calls, 2);
  run.rewards[1].name = "./x";
  run.rewards[1].score = [](std::span<const RewardInput>) -> RewardScores {
    throw Error("the reward ./x", "is broken");
  };
  try {
    try_rewards(run.rewards, {.row = row, .question = question, .completions = 4});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the reward ./x: is broken; it was tried on the first prompt with made-up completions");
  }
}

// Returns the log of a run with this reward.
std::string said_of(double (*judge)(const RewardInput&), std::int64_t steps = 10) {
  const TemporaryDirectory directory;
  GrpoRun run = make_run(small_options(directory.path()), steps);
  run.rewards = {
      {"one", "one_reward", each([judge](const RewardInput& input) { return std::optional(judge(input)); })}};
  run.reward_weights = {1.0};
  return said_by(std::move(run));
}

TEST(IdleRuns, GetOneRemarkWithTheLikelyCause) {
  const std::string zero = said_of([](const RewardInput&) { return 0.0; });
  EXPECT_THAT(zero, AllOf(HasSubstr("hone: warning: 10 steps in a row taught nothing: every reward is 0: "),
                          HasSubstr("% of the completions are cut at max_completion_length 12")));
  EXPECT_THAT(said_of([](const RewardInput&) { return 1.0; }),
              HasSubstr("taught nothing: all completions of a prompt have the same reward"));
  const auto differing = [](const RewardInput& input) { return static_cast<double>(input.completion_ids.front()); };
  EXPECT_THAT(said_of(differing), Not(HasSubstr("taught nothing")));
  EXPECT_THAT(said_of([](const RewardInput&) { return 0.0; }, 9), Not(HasSubstr("taught nothing")));
}

TEST(GrpoLog, ALineShowsEachRewardTheLengthAndTheShareThatIsCut) {
  const std::string said = said_of([](const RewardInput& input) { return input.ended ? 1.0 : 0.0; }, 1);
  EXPECT_THAT(said, AllOf(HasSubstr("hone: step 1/1 | loss "), HasSubstr(" | reward "),
                          HasSubstr(" | rewards/one_reward/mean "), HasSubstr(" | completions/mean_length "),
                          HasSubstr(" | completions/clipped_ratio "), HasSubstr(" | grad_norm ")));
}

}  // namespace
}  // namespace hone::test
