// load_best_model_at_end: the final model has the weights of the best evaluation.
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/files.h"
#include "support/paths.h"
#include "train/scripted_run.h"

namespace hone::test {
namespace {
namespace fs = std::filesystem;

// Trains for `steps` steps, evaluating and saving after each of them.
void run(const fs::path& folder, TrainingOptions options, const std::vector<double>& evaluations, std::int64_t steps,
         const std::string& metric = "eval_loss") {
  options.eval_strategy = Interval::kSteps;
  options.save_strategy = SaveStrategy::kSteps;
  options.eval_steps = 1;
  options.save_steps = 1;
  run_scripted(folder, {.options = options, .evaluations = evaluations, .steps = steps, .metric = metric});
}

std::string weights_in(const fs::path& folder) { return read_file(folder / "model.safetensors"); }

TEST(BestModel, TheBestEvaluationsWeightsAreLeft) {
  const TemporaryDirectory temporary;
  const fs::path& folder = temporary.path();
  const std::vector<double> losses{5, 4, 2, 3, 6};
  run(folder / "last", {}, losses, 5);
  EXPECT_EQ(weights_in(folder / "last"), weights_in(folder / "last/checkpoint-5"));
  run(folder / "best", {.load_best_model_at_end = true}, losses, 5);
  EXPECT_EQ(weights_in(folder / "best"), weights_in(folder / "best/checkpoint-3"));
  EXPECT_EQ(weights_in(folder / "best"), weights_in(folder / "last/checkpoint-3"));
  EXPECT_NE(weights_in(folder / "best"), weights_in(folder / "last"));
}

TEST(BestModel, GreaterIsBetterUnlessItIsALoss) {
  const TemporaryDirectory temporary;
  const fs::path& folder = temporary.path();
  const TrainingOptions by_accuracy{.load_best_model_at_end = true, .metric_for_best_model = "mean_token_accuracy"};
  run(folder / "a", by_accuracy, {0.1, 0.4, 0.2}, 3, "eval_mean_token_accuracy");
  EXPECT_EQ(weights_in(folder / "a"), weights_in(folder / "a/checkpoint-2"));
  TrainingOptions lower = by_accuracy;
  lower.greater_is_better = false;
  run(folder / "b", lower, {0.1, 0.4, 0.2}, 3, "eval_mean_token_accuracy");
  EXPECT_EQ(weights_in(folder / "b"), weights_in(folder / "b/checkpoint-1"));
  EXPECT_THROW(run(folder / "c", by_accuracy, {1, 1, 1}, 3), Error);
}

TEST(BestModel, ItOutlivesTheLimitAndAResume) {
  const TemporaryDirectory temporary;
  const fs::path& folder = temporary.path();
  const TrainingOptions options{.save_total_limit = 2, .load_best_model_at_end = true};
  const std::vector<double> losses{5, 1, 4, 3, 6, 2};
  run(folder / "whole", options, losses, 6);
  EXPECT_TRUE(fs::exists(folder / "whole/checkpoint-2"));
  EXPECT_FALSE(fs::exists(folder / "whole/checkpoint-4"));
  run(folder / "parts", options, losses, 4);
  run(folder / "parts", options, losses, 6);
  EXPECT_EQ(weights_in(folder / "parts"), weights_in(folder / "parts/checkpoint-2"));
  EXPECT_EQ(weights_in(folder / "parts"), weights_in(folder / "whole"));
  EXPECT_EQ(weights_in(folder / "parts/checkpoint-6"), weights_in(folder / "whole/checkpoint-6"));
}

TEST(BestModel, EachEvaluationNeedsItsCheckpoint) {
  const OptionInput input;
  PretrainOptions options;
  options.model_name_or_path = "m";
  options.dataset_name = "d";
  options.output_dir = "o";
  options.load_best_model_at_end = true;
  EXPECT_THROW(check_options(options, input), Error);
  options.eval_strategy = Interval::kSteps;
  EXPECT_NO_THROW(check_options(options, input));
}

}  // namespace
}  // namespace hone::test
