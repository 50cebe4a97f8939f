// Evaluation during GRPO, and loss options that the default run does not use, on complete runs.
#include <gtest/gtest.h>

#include <cmath>

#include "core/files.h"
#include "core/json_value.h"
#include "rl/small_run.h"
#include "support/device.h"
#include "support/models.h"
#include "support/paths.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kHeldOut = 5;

GrpoRun with_evaluation(const GrpoOptions& options, std::int64_t steps) {
  GrpoRun run = make_run(options, steps);
  run.eval_prompts = random_prompts(kHeldOut, run.model->shape().vocab_size, 9);
  return run;
}

bool is_evaluation(const MetricRow& row) { return row.find("eval_reward").has_value(); }

TEST(GrpoEvaluation, HeldOutPromptsAreJudgedAndTrainingIsAsWithout) {
  const TemporaryDirectory plain;
  const TemporaryDirectory evaluated;
  GrpoOptions options = small_options(plain.path());
  options.learning_rate = 1e-2;
  options.beta = 0.1;
  options.per_device_train_batch_size = 8;
  const std::vector<MetricRow> wanted = train_rows(options, 4);
  options.output_dir = evaluated.path().string();
  options.eval_strategy = Interval::kSteps;
  options.eval_steps = 2;
  options.eval_on_start = true;
  GrpoRun run = with_evaluation(options, 4);
  (void)train(run);
  std::vector<MetricRow> trained;
  std::vector<MetricRow> evaluations;
  for (const MetricRow& row : read_metrics(evaluated.path() / "metrics.jsonl")) {
    (is_evaluation(row) ? evaluations : trained).push_back(row);
  }
  ASSERT_EQ(trained.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    for (const char* name : {"loss", "reward", "kl", "grad_norm", "num_tokens"}) {
      EXPECT_EQ(value_of(trained[i], name), value_of(wanted[i], name)) << name;
    }
  }
  EXPECT_EQ(read_file(evaluated.path() / "model.safetensors"), read_file(plain.path() / "model.safetensors"));

  ASSERT_EQ(evaluations.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const MetricRow& row = evaluations[i];
    EXPECT_EQ(row.step, static_cast<std::int64_t>(2 * i));
    const std::vector<Json> lines = completions_in(options, "eval-step-" + std::to_string(row.step));
    ASSERT_EQ(lines.size(), static_cast<std::size_t>(4 * kHeldOut));
    double early = 0;
    for (const Json& line : lines) {
      const auto completion = line.at("completion").get<std::string>();
      early += *early_letters({.completion = completion}) / static_cast<double>(lines.size());
    }
    EXPECT_NEAR(value_of(row, "eval_rewards/early_reward/mean"), early, 1e-9);
    EXPECT_EQ(value_of(row, "eval_kl") == 0, i == 0) << "the policy moves away from the reference";
    EXPECT_GT(value_of(row, "eval_entropy"), 0);
    EXPECT_TRUE(std::isfinite(value_of(row, "eval_loss")));
    EXPECT_GT(value_of(row, "eval_completions/mean_length"), 0);
    EXPECT_FALSE(row.find("loss"));
  }
  EXPECT_NE(value_of(evaluations[0], "eval_entropy"), value_of(evaluations[2], "eval_entropy"));
}

TEST(GrpoEvaluation, TheSameWeightsGiveTheSameFiguresInAnyMicroBatches) {
  std::vector<double> losses;
  for (const std::int64_t micro_batch : {4, 8}) {
    const TemporaryDirectory directory;
    GrpoOptions options = small_options(directory.path());
    options.learning_rate = 0;
    options.beta = 0.1;
    options.per_device_train_batch_size = micro_batch;
    options.eval_strategy = Interval::kSteps;
    options.eval_steps = 1;
    GrpoRun run = with_evaluation(options, 2);
    (void)train(run);
    std::vector<MetricRow> evaluations;
    for (const MetricRow& row : read_metrics(directory.path() / "metrics.jsonl")) {
      if (is_evaluation(row)) evaluations.push_back(row);
    }
    ASSERT_EQ(evaluations.size(), 2u);
    EXPECT_EQ(evaluations[0].values, evaluations[1].values);
    losses.push_back(value_of(evaluations[0], "eval_loss"));
  }
  EXPECT_NEAR(losses[0], losses[1], 1e-6 * std::max(std::abs(losses[0]), 0.1));
}

TEST(GrpoEvaluation, ItsProgramsAreInThePlan) {
  const TemporaryDirectory directory;
  GrpoOptions options = small_options(directory.path());
  options.eval_strategy = Interval::kSteps;
  options.top_entropy_quantile = 0.5;
  GrpoRun run = with_evaluation(options, 1);
  const Workspace workspace = trace_run(run);
  EXPECT_TRUE(workspace.has_program(kPolicyEvaluationProgram) && workspace.has_program(kForwardProgram));
  const std::size_t before = test_device().allocated_bytes();
  std::size_t held = 0;
  run.rewards.push_back({"probe", "probe", each([&](const RewardInput&) {
                           held = test_device().allocated_bytes() - before;
                           return std::optional<double>();
                         })});
  run.reward_weights.push_back(1.0);
  (void)train(run);
  EXPECT_EQ(held, workspace.memory().total());
}

// Sequence ratios and the entropy quantile do not depend on the split of a step into micro-batches.
TEST(GrpoLosses, MicroBatchesAgreeAndEachOptionChangesTheStep) {
  const auto second_step = [](std::int64_t micro_batch, const auto& change) {
    const TemporaryDirectory directory;
    GrpoOptions options = small_options(directory.path());
    options.per_device_train_batch_size = micro_batch;
    options.gradient_accumulation_steps = 8 / micro_batch;
    options.num_iterations = 2;
    options.learning_rate = 1e-2;
    options.beta = 0.04;
    options.epsilon = 0.01;
    change(options);
    return train_rows(options, 2)[1];
  };
  const auto plain = second_step(8, [](GrpoOptions&) {});
  const std::vector<std::pair<const char*, void (*)(GrpoOptions&)>> changes{
      {"gspo", [](GrpoOptions& o) { o.importance_sampling_level = ImportanceLevel::kSequence; }},
      {"cispo",
       [](GrpoOptions& o) {
         o.loss_type = GrpoLoss::kCispo;
         o.epsilon_high = 1.01;
       }},
      {"top_entropy_quantile", [](GrpoOptions& o) { o.top_entropy_quantile = 0.4; }}};
  for (const auto& [name, change] : changes) {
    const MetricRow whole = second_step(8, change);
    EXPECT_EQ(whole.find("cispo_clip_ratio").has_value(), std::string(name) == "cispo");
    EXPECT_EQ(whole.find("clip_ratio/low_mean").has_value(), std::string(name) != "cispo");
    for (const char* metric : {"loss", "grad_norm"}) {
      const double wanted = value_of(whole, metric);
      EXPECT_GT(std::abs(wanted - value_of(plain, metric)), 1e-4) << name << ", " << metric;
      for (const std::int64_t micro_batch : {4, 1}) {
        EXPECT_NEAR(value_of(second_step(micro_batch, change), metric), wanted, 1e-4 * std::max(std::abs(wanted), 0.1))
            << name << ", " << metric << ", micro-batches of " << micro_batch;
      }
    }
  }
}

}  // namespace
}  // namespace hone::test
