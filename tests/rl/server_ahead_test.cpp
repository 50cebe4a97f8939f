// Runs with max_staleness: 1 whose servers draw the next generation while a step trains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "rl/interrupt_handlers.h"
#include "rl/served_runs.h"

namespace hone::test {
namespace {

class ServerAhead : public ServedTest {};

namespace fs = std::filesystem;

constexpr const char* kStaleShare = "sampling/stale_tokens";
constexpr const char* kLogpGap = "sampling/sampling_logp_difference/max";

GrpoOptions ahead_options(const ServedRuns& servers, const fs::path& output_dir) {
  GrpoOptions options = servers.options(output_dir);
  options.max_staleness = 1;
  return options;
}

// While the weights do not move, only the order of the work differs.
TEST_F(ServerAhead, ChangesNoBitWhileTheWeightsStay) {
  ServedRuns servers(1);
  const TemporaryDirectory plain;
  const TemporaryDirectory ahead;
  std::vector<std::vector<MetricRow>> rows;
  for (const std::int64_t staleness : {0, 1}) {
    GrpoOptions options = servers.options(staleness == 0 ? plain.path() : ahead.path());
    options.max_staleness = staleness;
    options.learning_rate = 0;
    rows.push_back(servers.train(options));
  }
  expect_same_run(ahead.path(), plain.path());
  for (std::size_t step = 0; step < 3; ++step) {
    for (const char* name : {"loss", "reward", "grad_norm", "num_tokens", "entropy"})
      EXPECT_EQ(value_of(rows[1][step], name), value_of(rows[0][step], name)) << name;
  }
}

// The generation of a step is drawn by the weights before the step before, and corrected.
TEST_F(ServerAhead, DrawsWithTheWeightsOfTheStepBefore) {
  ServedRuns servers(2);
  const TemporaryDirectory directory;
  const TemporaryDirectory still;
  const GrpoOptions options = ahead_options(servers, directory.path());
  const std::vector<MetricRow> rows = servers.train(options, 4);
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(value_of(rows[0], kStaleShare), 0.0);
  EXPECT_EQ(value_of(rows[0], kLogpGap), 0.0);
  for (std::size_t step = 1; step < rows.size(); ++step) {
    EXPECT_EQ(value_of(rows[step], kStaleShare), 1.0) << step;
    EXPECT_GT(value_of(rows[step], kLogpGap), 0.0) << step;
    EXPECT_EQ(value_of(rows[step], "clip_ratio/region_mean"), 0.0) << "old is the trainer's own";
  }
  GrpoOptions unmoved = ahead_options(servers, still.path());
  unmoved.learning_rate = 0;
  (void)servers.train(unmoved, 4);
  EXPECT_EQ(completions_of(options, 2).size(), completions_of(unmoved, 2).size());
  const auto texts = [](const GrpoOptions& of, std::int64_t step) {
    std::vector<std::string> all;
    for (const Json& line : completions_of(of, step)) all.push_back(line["completion"]);
    return all;
  };
  EXPECT_EQ(texts(options, 2), texts(unmoved, 2)) << "drawn by the first weights";
  EXPECT_NE(texts(options, 3), texts(unmoved, 3));
}

TEST_F(ServerAhead, ResumesBitwiseFromEveryStep) {
  ServedRuns servers(2);
  const TemporaryDirectory whole;
  GrpoOptions options = ahead_options(servers, whole.path());
  options.num_iterations = 2;
  options.save_strategy = SaveStrategy::kSteps;
  options.save_steps = 1;
  constexpr std::int64_t kSteps = 5;
  const std::vector<MetricRow> rows = servers.train(options, kSteps);
  for (std::int64_t step = 1; step < kSteps; ++step) {
    SCOPED_TRACE(text_of("from step ", step));
    const TemporaryDirectory resumed;
    GrpoOptions again = options;
    again.output_dir = resumed.path().string();
    again.resume_from_checkpoint = (whole.path() / text_of("checkpoint-", step)).string();
    again.vllm_server_url.resize(1);  // the number of servers changes nothing
    const std::vector<MetricRow> later = servers.train(again, kSteps);
    ASSERT_EQ(later.size(), static_cast<std::size_t>(kSteps - step));
    for (std::size_t i = 0; i < later.size(); ++i) {
      for (const char* name : {"loss", "grad_norm", "reward", kStaleShare, kLogpGap})
        EXPECT_EQ(later[i].find(name), rows[i + static_cast<std::size_t>(step)].find(name)) << name;
    }
    for (const char* file : {"model.safetensors", "completions/step-5.jsonl", "checkpoint-5/optimizer.safetensors"})
      EXPECT_EQ(read_file(resumed.path() / file), read_file(whole.path() / file)) << file;
  }
}

// Returns a run of four steps that calls strike() when the third generation is judged.
GrpoRun struck_run(ServedRuns& servers, const GrpoOptions& options, const std::function<void()>& strike) {
  GrpoRun run = servers.run(options, 4);
  run.rewards.push_back({"strikes", "strikes",
                         [strike, generations = 0](std::span<const RewardInput> batch) mutable {
                           if (++generations == 3) strike();
                           return RewardScores(batch.size());
                         },
                         RewardScope::kBatch});
  run.reward_weights.push_back(0.0);
  return run;
}

// A step that fails or is interrupted is not a part of what is saved, whatever the servers are drawing.
TEST_F(ServerAhead, AStepThatEndsEarlySavesWhatWasBefore) {
  ServedRuns servers(1);
  const TemporaryDirectory whole;
  (void)servers.train(ahead_options(servers, whole.path()), 4);
  for (const bool interrupts : {false, true}) {
    const TemporaryDirectory ended;
    GrpoOptions options = ahead_options(servers, ended.path());
    GrpoRun run = struck_run(servers, options, [&] {
      if (interrupts) ::raise(SIGINT);
      if (!interrupts) throw Error("strikes", "the third generation");
    });
    {
      const InterruptHandlers handlers;
      if (interrupts) {
        EXPECT_THROW((void)train(run), Interrupted);
      } else {
        EXPECT_THROW((void)train(run), Error);
      }
    }
    // An interrupt may come after the servers have drawn the generation; the step is then completed.
    EXPECT_TRUE(is_folder(ended.path() / "checkpoint-2") || (interrupts && is_folder(ended.path() / "checkpoint-3")));
    options.resume_from_checkpoint = "true";
    (void)servers.train(options, 4);
    EXPECT_EQ(read_file(ended.path() / "model.safetensors"), read_file(whole.path() / "model.safetensors"));
  }
}

// A server does not continue what an engine has begun: it draws the generation whole.
TEST_F(ServerAhead, ACheckpointOfAnEngineContinues) {
  ServedRuns servers(1);
  const TemporaryDirectory own;
  GrpoOptions options = ahead_options(servers, own.path());
  options.rollout = RolloutKind::kOwn;
  options.save_strategy = SaveStrategy::kSteps;
  options.save_steps = 2;
  (void)servers.train(options, 4);
  const TemporaryDirectory served;
  GrpoOptions later = ahead_options(servers, served.path());
  later.resume_from_checkpoint = (own.path() / "checkpoint-2").string();
  const std::vector<MetricRow> rows = servers.train(later, 4);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(value_of(rows[0], kStaleShare), 0.0);
  EXPECT_EQ(value_of(rows[1], kStaleShare), 1.0);
}

}  // namespace
}  // namespace hone::test
