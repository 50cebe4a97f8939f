// load_best_model_at_end: the weights that evaluated best are those that a run leaves.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files.h"
#include "support/device.h"
#include "support/models.h"
#include "support/paths.h"
#include "train/loss_program.h"
#include "train/trainer.h"

namespace hone::test {
namespace {
namespace fs = std::filesystem;

// Trains on one batch; its evaluations are told.
class ToldTask final : public TrainingTask {
 public:
  ToldTask(Executable& executable, HostBatch batch, std::vector<double> evaluations, const std::string& metric)
      : executable_(executable), batch_(std::move(batch)), evaluations_(std::move(evaluations)), metric_(metric) {}

  MetricValues accumulate(std::int64_t step) override {
    ++steps_;
    LossLaunches launches(executable_, 1, 3, step);
    launches.launch(batch_, 1.0 / static_cast<double>(batch_.target_tokens));
    return {{"loss", launches.sums().loss}};
  }
  double epoch() const override { return 0; }
  std::int64_t tokens_seen() const override { return steps_; }
  double flops() const override { return 1; }
  MetricValues evaluate(std::int64_t step) override {
    return {{metric_, evaluations_.at(static_cast<std::size_t>(step - 1))}};
  }
  Json last_batch() const override { return {}; }
  Json state() const override { return {{"steps", steps_}}; }
  void restore(const Json& state) override { steps_ = state.at("steps").get<std::int64_t>(); }

 private:
  Executable& executable_;
  HostBatch batch_;
  std::vector<double> evaluations_;  // after step 1, 2, ...
  std::string metric_;
  std::int64_t steps_ = 0;
};

// Runs to `steps`, evaluating and saving after each.
void run(const fs::path& folder, TrainingOptions options, const std::vector<double>& evaluations, std::int64_t steps,
         const std::string& metric = "eval_loss") {
  FixtureModel fixture("gpt2");
  Json config = fixture.model->config();
  config["resid_pdrop"] = 0.1;
  const std::unique_ptr<Model> model = family_registry().create(config);
  const HostBatch batch = fixture.batch();
  auto arena = std::make_shared<Arena>(test_device());
  Optimizer optimizer(*model, fixture.weights, arena, {});
  Executable executable(trace_training(*model, {.capacity = {batch.token_count(), batch.document_count()}}), arena,
                        {.weights = &fixture.weights, .gradients = &optimizer.gradients()});
  const Tokenizer tokenizer = letter_tokenizer(model->shape().vocab_size);
  options.output_dir = folder.string();
  options.learning_rate = 1e-3;
  options.lr_scheduler_type = SchedulerType::constant;
  options.eval_strategy = Interval::steps;
  options.save_strategy = SaveStrategy::steps;
  options.eval_steps = 1;
  options.save_steps = 1;
  ToldTask task(executable, batch, evaluations, metric);
  Trainer trainer(options, {.command = "test", .total_steps = steps, .options = "{}"},
                  {.model = *model,
                   .weights = fixture.weights,
                   .optimizer = optimizer,
                   .tokenizer = tokenizer,
                   .generation_config = "{}"});
  trainer.run(task);
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
  options.eval_strategy = Interval::steps;
  EXPECT_NO_THROW(check_options(options, input));
}

}  // namespace
}  // namespace hone::test
