// The steps at which a run logs, evaluates and saves, the checkpoints that it keeps, and a repeated run of its command.
#include <gtest/gtest.h>

#include <functional>
#include <ostream>

#include "checkpoint/training_state.h"
#include "core/error.h"
#include "core/files.h"
#include "support/paths.h"
#include "train/metrics.h"
#include "train/scripted_run.h"

namespace hone::test {
namespace {
namespace fs = std::filesystem;

using Steps = std::vector<std::int64_t>;

// Steps of the log lines, evaluations and checkpoints that a run left.
struct Left {
  Steps logged, evaluated, saved;
  friend bool operator==(const Left&, const Left&) = default;
};

std::ostream& operator<<(std::ostream& out, const Left& left) {
  for (const auto& [name, steps] :
       {std::pair("logged", left.logged), {"evaluated", left.evaluated}, {"saved", left.saved}}) {
    out << name;
    for (const std::int64_t step : steps) out << " " << step;
    out << "; ";
  }
  return out;
}

Left left_in(const fs::path& folder) {
  Left left;
  for (const MetricRow& row : read_metrics(folder / "metrics.jsonl")) {
    (row.find("eval_loss") ? left.evaluated : left.logged).push_back(row.step);
  }
  for (const CheckpointFolder& checkpoint : checkpoints_in(folder)) left.saved.push_back(checkpoint.step);
  return left;
}

TrainingOptions quiet() { return {.logging_strategy = Interval::kNo, .save_strategy = SaveStrategy::kNo}; }

// Runs seven steps, two per epoch. Before `change`, the options log, evaluate and save nothing before the end.
Left left_by(const std::function<void(TrainingOptions&)>& change) {
  const TemporaryDirectory folder;
  TrainingOptions options = quiet();
  change(options);
  run_scripted(folder.path(),
               {.options = options, .evaluations = {5, 4, 6, 3, 3, 7, 2.5}, .steps = 7, .steps_per_epoch = 2});
  return left_in(folder.path());
}

TEST(Strategies, WhatIsLoggedEvaluatedAndSaved) {
  struct Case {
    const char* name;
    std::function<void(TrainingOptions&)> change;
    Left left;
  };
  using Options = TrainingOptions;
  const std::vector<Case> cases{
      {"nothing but the end", [](Options&) {}, {{7}, {}, {}}},
      {"logging by steps",
       [](Options& o) { o.logging_strategy = Interval::kSteps, o.logging_steps = 3; },
       {{3, 6, 7}, {}, {}}},
      {"the first step too",
       [](Options& o) { o.logging_strategy = Interval::kSteps, o.logging_steps = 3, o.logging_first_step = true; },
       {{1, 3, 6, 7}, {}, {}}},
      {"logging by a share",
       [](Options& o) { o.logging_strategy = Interval::kSteps, o.logging_steps = 0.25; },
       {{2, 4, 6, 7}, {}, {}}},
      {"logging by epochs", [](Options& o) { o.logging_strategy = Interval::kEpoch; }, {{2, 4, 6, 7}, {}, {}}},
      {"evaluating by steps",
       [](Options& o) { o.eval_strategy = Interval::kSteps, o.eval_steps = 3; },
       {{7}, {3, 6}, {}}},
      {"evaluating as often as logging",
       [](Options& o) { o.eval_strategy = Interval::kSteps, o.logging_steps = 2; },
       {{7}, {2, 4, 6}, {}}},
      {"evaluating by a share",
       [](Options& o) { o.eval_strategy = Interval::kSteps, o.eval_steps = 0.5; },
       {{7}, {4}, {}}},
      {"evaluating by epochs", [](Options& o) { o.eval_strategy = Interval::kEpoch; }, {{7}, {2, 4, 6, 7}, {}}},
      {"evaluating before the first step", [](Options& o) { o.eval_on_start = true; }, {{7}, {0}, {}}},
      {"evaluating at the end", [](Options& o) { o.do_eval = true; }, {{7}, {7}, {}}},
      {"do_eval with a strategy",
       [](Options& o) { o.do_eval = true, o.eval_strategy = Interval::kSteps, o.eval_steps = 5; },
       {{7}, {5}, {}}},
      {"saving by steps",
       [](Options& o) { o.save_strategy = SaveStrategy::kSteps, o.save_steps = 3; },
       {{7}, {}, {3, 6, 7}}},
      {"saving by a share",
       [](Options& o) { o.save_strategy = SaveStrategy::kSteps, o.save_steps = 0.5; },
       {{7}, {}, {4, 7}}},
      {"saving by epochs", [](Options& o) { o.save_strategy = SaveStrategy::kEpoch; }, {{7}, {}, {2, 4, 6, 7}}},
      {"saving the best",
       [](Options& o) { o.save_strategy = SaveStrategy::kBest, o.eval_strategy = Interval::kSteps, o.eval_steps = 1; },
       {{7}, {1, 2, 3, 4, 5, 6, 7}, {1, 2, 4, 7}}},
      {"the greatest is the best",
       [](Options& o) {
         o.save_strategy = SaveStrategy::kBest, o.eval_strategy = Interval::kSteps, o.eval_steps = 1;
         o.greater_is_better = true;
       },
       {{7}, {1, 2, 3, 4, 5, 6, 7}, {1, 3, 6}}},
      {"a limit",
       [](Options& o) { o.save_strategy = SaveStrategy::kSteps, o.save_steps = 1, o.save_total_limit = 2; },
       {{7}, {}, {6, 7}}},
      {"a limit of one, and the best",
       [](Options& o) {
         o.save_strategy = SaveStrategy::kSteps, o.save_steps = 1, o.save_total_limit = 1;
         o.eval_strategy = Interval::kEpoch, o.greater_is_better = true;
         o.load_best_model_at_end = true, o.save_strategy = SaveStrategy::kEpoch;
       },
       {{7}, {2, 4, 6, 7}, {6, 7}}},
  };
  for (const Case& one : cases) EXPECT_EQ(left_by(one.change), one.left) << one.name;
}

class ResumeSemantics : public testing::Test {
 protected:
  void SetUp() override { run(3, {}); }
  // Runs up to `steps` steps in the same folder, logging and saving each step.
  void run(std::int64_t steps, const std::function<void(TrainingOptions&)>& change) {
    TrainingOptions options{.logging_steps = 1, .save_steps = 1};
    if (change) change(options);
    run_scripted(folder_.path(), {.options = options, .steps = steps});
  }
  [[nodiscard]] std::int64_t tokens_after_last() const {
    return static_cast<std::int64_t>(read_metrics(folder_.path() / "metrics.jsonl").back().find("num_tokens").value());
  }
  [[nodiscard]] Steps logged() const { return left_in(folder_.path()).logged; }

  TemporaryDirectory folder_;
};

TEST_F(ResumeSemantics, UnsetItResumesTheLastCheckpoint) {
  run(5, {});
  EXPECT_EQ(logged(), (Steps{1, 2, 3, 4, 5}));
  EXPECT_EQ(tokens_after_last(), 5);
}

TEST_F(ResumeSemantics, TrueResumesTheLastCheckpoint) {
  run(5, [](TrainingOptions& options) { options.resume_from_checkpoint = "true"; });
  EXPECT_EQ(tokens_after_last(), 5);
  // As in transformers, resume_from_checkpoint takes precedence over overwrite_output_dir.
  run(6, [](TrainingOptions& options) {
    options.resume_from_checkpoint = "true";
    options.overwrite_output_dir = true;
  });
  EXPECT_EQ(logged(), (Steps{1, 2, 3, 4, 5, 6}));
}

TEST_F(ResumeSemantics, APathResumesThatOne) {
  const std::string path = (folder_.path() / "checkpoint-2").string();
  run(4, [&](TrainingOptions& options) { options.resume_from_checkpoint = path; });
  EXPECT_EQ(logged(), (Steps{1, 2, 3, 4}));
  EXPECT_EQ(tokens_after_last(), 4);
}

TEST_F(ResumeSemantics, OverwritingStartsAnew) {
  run(2, [](TrainingOptions& options) { options.overwrite_output_dir = true; });
  EXPECT_EQ(logged(), (Steps{1, 2}));
  EXPECT_EQ(tokens_after_last(), 2);
  // The checkpoint of step 3 of the replaced run is deleted; it would look like a later one of this run.
  EXPECT_EQ(left_in(folder_.path()).saved, (Steps{1, 2}));
}

TEST_F(ResumeSemantics, FalseStartsAnew) {
  run(2, [](TrainingOptions& options) { options.resume_from_checkpoint = "false"; });
  EXPECT_EQ(logged(), (Steps{1, 2}));
}

TEST_F(ResumeSemantics, AFinishedRunHasNothingToDo) {
  const std::string weights = read_file(folder_.path() / "model.safetensors");
  run(3, {});
  EXPECT_EQ(logged(), (Steps{1, 2, 3}));
  EXPECT_EQ(read_file(folder_.path() / "model.safetensors"), weights);
}

TEST_F(ResumeSemantics, AModelAloneCannotBeResumed) {
  run(4, [](TrainingOptions& options) { options.save_only_model = true; });
  constexpr std::uintmax_t kHeader = 64;
  EXPECT_LE(fs::file_size(folder_.path() / "checkpoint-4/optimizer.safetensors"), kHeader);
  EXPECT_TRUE(fs::exists(folder_.path() / "checkpoint-4/model.safetensors"));
  const std::string path = (folder_.path() / "checkpoint-4").string();
  EXPECT_THROW(run(5, [&](TrainingOptions& options) { options.resume_from_checkpoint = path; }), Error);
}

}  // namespace
}  // namespace hone::test
