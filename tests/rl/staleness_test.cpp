// Runs with max_staleness: 1 on a small model: the next generation is begun while the last completions are drawn.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "checkpoint/training_state.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "rl/begun_generation.h"
#include "rl/small_run.h"
#include "support/paths.h"

namespace hone::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStale = "sampling/stale_tokens";
constexpr const char* kDifferenceOfLogps = "sampling/sampling_logp_difference/max";

GrpoOptions ahead_options(const fs::path& output_dir) {
  GrpoOptions options = small_options(output_dir);
  options.per_device_train_batch_size = 8;
  options.max_completion_length = 24;
  options.max_staleness = 1;
  options.learning_rate = 1e-2;
  return options;
}

// While the weights do not move, nothing is older than they are: only the order of the work differs.
TEST(Staleness, ChangesNoBitWhileTheWeightsStay) {
  std::vector<std::vector<MetricRow>> rows;
  std::vector<std::vector<Json>> completions(2);
  for (const std::size_t staleness : {0, 1}) {
    const TemporaryDirectory directory;
    GrpoOptions options = ahead_options(directory.path());
    options.max_staleness = static_cast<std::int64_t>(staleness);
    options.learning_rate = 0;
    options.beta = 0.1;
    rows.push_back(train_rows(options, 4));
    for (std::int64_t step = 1; step <= 4; ++step)
      for (const Json& line : completions_of(options, step)) completions[staleness].push_back(line);
  }
  ASSERT_EQ(rows[1].size(), 4U);
  EXPECT_EQ(completions[1], completions[0]);
  for (std::size_t i = 0; i < 4; ++i) {
    for (const char* name : {"loss", "grad_norm", "reward", "kl", "entropy", "num_tokens", "completions/mean_length"})
      EXPECT_EQ(value_of(rows[1][i], name), value_of(rows[0][i], name)) << name;
    EXPECT_EQ(value_of(rows[1][i], kDifferenceOfLogps), 0.0);
    EXPECT_EQ(value_of(rows[1][i], "sampling/importance_sampling_ratio/min"), 1.0);
    EXPECT_EQ(value_of(rows[1][i], "sampling/importance_sampling_ratio/max"), 1.0);
  }
}

// An evaluation changes no completion, and compares nothing, since nothing in it is older than the weights.
TEST(Staleness, DoesNotDependOnEvaluations) {
  std::vector<std::vector<Json>> completions(2);
  for (const bool evaluates : {false, true}) {
    const TemporaryDirectory directory;
    GrpoOptions options = ahead_options(directory.path());
    if (evaluates) {
      options.eval_strategy = Interval::kSteps;
      options.eval_steps = 1;
    }
    GrpoRun run = make_run(options, 4);
    run.eval_prompts = run.prompts;
    (void)train(run);
    for (std::int64_t step = 1; step <= 4; ++step)
      for (const Json& line : completions_of(options, step)) completions[evaluates ? 1 : 0].push_back(line);
    if (!evaluates) continue;
    for (const MetricRow& row : read_metrics(directory.path() / "metrics.jsonl"))
      EXPECT_FALSE(row.find("eval_sampling/sampling_logp_difference/max")) << "nothing in an evaluation is older";
  }
  EXPECT_EQ(completions[1], completions[0]);
}

TEST(Staleness, OlderTokensKeepTheirLogProbabilitiesAndAreCorrected) {
  const TemporaryDirectory directory;
  GrpoOptions options = ahead_options(directory.path());
  options.vllm_importance_sampling_mode = ImportanceMode::kTokenTruncate;
  const std::vector<MetricRow> rows = train_rows(options, 5);
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_EQ(value_of(rows[0], kStale), 0.0);
  EXPECT_EQ(value_of(rows[0], kDifferenceOfLogps), 0.0);
  for (std::size_t i = 1; i < rows.size(); ++i) {
    EXPECT_GT(value_of(rows[i], kStale), 0.0) << i;
    EXPECT_LT(value_of(rows[i], kStale), 1.0) << i;
    EXPECT_GT(value_of(rows[i], kDifferenceOfLogps), 0.0) << i;
    EXPECT_NE(value_of(rows[i], "sampling/importance_sampling_ratio/mean"), 1.0) << i;
    EXPECT_EQ(value_of(rows[i], "clip_ratio/region_mean"), 0.0) << "old is the trainer's own";
  }
  // The first generation is that of a run without staleness; later ones are not.
  const TemporaryDirectory plain;
  GrpoOptions taking_turns = ahead_options(plain.path());
  taking_turns.max_staleness = 0;
  (void)train_rows(taking_turns, 5);
  EXPECT_EQ(completions_of(options, 1), completions_of(taking_turns, 1));
  EXPECT_NE(completions_of(options, 5), completions_of(taking_turns, 5));
}

// The correction changes the gradient; without it the run takes the tokens as if the trainer had drawn them.
TEST(Staleness, TheCorrectionCanBeTurnedOff) {
  std::vector<std::vector<MetricRow>> rows;
  for (const bool corrects : {true, false}) {
    const TemporaryDirectory directory;
    GrpoOptions options = ahead_options(directory.path());
    if (!corrects) options.vllm_importance_sampling_correction = false;
    rows.push_back(train_rows(options, 3));
  }
  EXPECT_EQ(value_of(rows[0][0], "grad_norm"), value_of(rows[1][0], "grad_norm"));
  EXPECT_EQ(value_of(rows[0][1], kDifferenceOfLogps), value_of(rows[1][1], kDifferenceOfLogps));
  EXPECT_NE(value_of(rows[0][1], "grad_norm"), value_of(rows[1][1], "grad_norm"));
}

// A step of several generations has no update between them.
TEST(Staleness, TokensOfTheSameWeightsAreNotStale) {
  const TemporaryDirectory directory;
  GrpoOptions options = ahead_options(directory.path());
  options.per_device_train_batch_size = 4;
  options.steps_per_generation = 1;
  options.gradient_accumulation_steps = 2;
  const std::vector<MetricRow> rows = train_rows(options, 3);
  EXPECT_EQ(value_of(rows[0], kStale), 0.0);
  EXPECT_EQ(value_of(rows[0], kDifferenceOfLogps), 0.0);
  EXPECT_GT(value_of(rows[1], kStale), 0.0);
}

const std::vector<std::string> kCompared{
    "loss",       "grad_norm", "reward",           "entropy",
    "num_tokens", kStale,      kDifferenceOfLogps, "sampling/importance_sampling_ratio/mean"};

// Continues from the checkpoint of each step, in the middle of a generation that is used twice as well.
TEST(Staleness, ResumesBitwiseFromEveryStep) {
  const TemporaryDirectory whole;
  GrpoOptions options = ahead_options(whole.path());
  options.num_iterations = 2;
  options.beta = 0.1;
  options.repetition_penalty = 1.1;
  options.save_strategy = SaveStrategy::kSteps;
  options.save_steps = 1;
  constexpr std::int64_t kSteps = 7;
  const std::vector<MetricRow> rows = train_rows(options, kSteps);
  ASSERT_EQ(rows.size(), static_cast<std::size_t>(kSteps));
  for (std::int64_t step = 1; step < kSteps; ++step) {
    SCOPED_TRACE(text_of("from step ", step));
    const fs::path checkpoint = whole.path() / text_of("checkpoint-", step);
    const TrainingState state(checkpoint);
    EXPECT_NE(state.tensors().find("task.begun.tokens"), nullptr);
    EXPECT_TRUE(state.json().at("task").contains("begun_prompts"));
    const TemporaryDirectory resumed;
    GrpoOptions again = options;
    again.output_dir = resumed.path().string();
    again.resume_from_checkpoint = checkpoint.string();
    const std::vector<MetricRow> later = train_rows(again, kSteps);
    ASSERT_EQ(later.size(), static_cast<std::size_t>(kSteps - step));
    for (std::size_t i = 0; i < later.size(); ++i) {
      const MetricRow& wanted = rows[i + static_cast<std::size_t>(step)];
      for (const std::string& name : kCompared) EXPECT_EQ(later[i].find(name), wanted.find(name)) << name;
    }
    for (const char* file : {"model.safetensors", "completions/step-7.jsonl", "checkpoint-7/optimizer.safetensors"})
      EXPECT_EQ(read_file(resumed.path() / file), read_file(whole.path() / file)) << file;
  }
  const TrainingState last(whole.path() / "checkpoint-7");
  EXPECT_EQ(last.tensors().find("task.begun.tokens"), nullptr) << "no generation follows the last one";
}

// A step that fails is not a part of what is saved, nor is what it has begun.
TEST(Staleness, AFailedStepSavesWhatWasBefore) {
  const TemporaryDirectory whole;
  const GrpoOptions options = ahead_options(whole.path());
  (void)train_rows(options, 4);
  const TemporaryDirectory failing;
  GrpoOptions failing_options = options;
  failing_options.output_dir = failing.path().string();
  GrpoRun run = make_run(failing_options, 4);
  int generations = 0;
  run.rewards.push_back({"fails", "fails",
                         [&](std::span<const RewardInput> batch) {
                           if (++generations == 3) throw Error("fails", "the third generation");
                           return RewardScores(batch.size());
                         },
                         RewardScope::kBatch});
  run.reward_weights.push_back(0.0);
  EXPECT_THROW((void)train(run), Error);
  GrpoOptions resumed = failing_options;
  resumed.resume_from_checkpoint = "true";
  (void)train_rows(resumed, 4);
  EXPECT_EQ(read_file(failing.path() / "model.safetensors"), read_file(whole.path() / "model.safetensors"));
}

TEST(Staleness, ACheckpointMayContinueWithoutIt) {
  const TemporaryDirectory directory;
  GrpoOptions options = ahead_options(directory.path());
  options.save_strategy = SaveStrategy::kSteps;
  options.save_steps = 2;
  (void)train_rows(options, 4);
  const TemporaryDirectory resumed;
  options.resume_from_checkpoint = (directory.path() / "checkpoint-2").string();
  options.output_dir = resumed.path().string();
  options.max_staleness = 0;
  const std::vector<MetricRow> rows = train_rows(options, 4);
  ASSERT_EQ(rows.size(), 2U);
  for (const MetricRow& row : rows) {
    EXPECT_FALSE(row.find(kStale));
    EXPECT_EQ(value_of(row, kDifferenceOfLogps), 0.0);
  }
}

TEST(Staleness, TensorsHoldWhatHasBegun) {
  BegunGeneration begun{.completions = {{{1, 2, 3}, {-1, -2, -3}}, {}, {{7}, {-0.5f}}}, .prompts = "p"};
  const std::vector<TaskTensor> tensors = begun.tensors();
  EXPECT_EQ(tensors.size(), 3U);
  EXPECT_EQ(BegunGeneration::from(tensors, "p").completions, begun.completions);
  EXPECT_TRUE(BegunGeneration::from({}, "").completions.empty());
  EXPECT_THROW((void)BegunGeneration::from(std::span(tensors).first(2), "p"), Error);
  begun.completions.assign(3, {});
  EXPECT_TRUE(begun.tensors().empty());
}

TEST(Staleness, OptionsThatExcludeItAreNamed) {
  GrpoOptions options = ahead_options("out");
  options.model_name_or_path = "m";
  options.dataset_name = "d";
  const auto message_of = [](const auto& check) {
    try {
      check();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_EQ(message_of([&] { check_options(options, {}); }), "none");
  GrpoOptions several = options;
  several.num_processes = 2;
  EXPECT_EQ(message_of([&] { check_processes(several, {}); }),
            "max_staleness: is 1; an engine begins generations ahead in one process or tensor group only "
            "(--num_processes 1, rollout: server, or max_staleness: 0)");
  several.rollout = RolloutKind::kServer;
  several.vllm_server_url = {"http://localhost:1"};
  EXPECT_EQ(message_of([&] { check_processes(several, {}); }), "none");
}

}  // namespace
}  // namespace hone::test
