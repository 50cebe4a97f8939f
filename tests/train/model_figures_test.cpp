// Additional losses and statistics of a model: their effect on the loss and their metrics.
#include "train/model_figures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/error.h"
#include "ops/fill/fill.h"
#include "ops/linear_logprobs/linear_logprobs.h"
#include "ops/scale/scale.h"
#include "ops/weighted_sum/weighted_sum.h"
#include "program/text.h"
#include "support/models.h"
#include "train/loss_program.h"

namespace hone::test {
namespace {

// Wraps a model with an additional loss: predicting each token from its own hidden state.
class Echoing final : public Model {
 public:
  Echoing(const Model& base, double coefficient) : base_(base), coefficient_(coefficient) {}

  const ModelShape& shape() const override { return base_.shape(); }
  const Json& config() const override { return base_.config(); }
  const std::vector<WeightSpec>& weights() const override { return base_.weights(); }
  std::string_view head() const override { return base_.head(); }
  Tensor forward(WeightBinder& weights, Batch& batch) const override {
    const Tensor hidden = base_.forward(weights, batch);
    if (!batch.learns) return hidden;
    const LinearLogprobs echo = linear_logprobs(hidden, weights(head()), batch.tokens, {});
    batch.add_loss({"echo_loss", coefficient_, scale(echo.logp, -1.0)});
    batch.add_statistic({"echo_entropy", StatisticKind::kMean, echo.entropy});
    const Tensor ones = fill(hidden.program(), echo.hit.type(), 1.0);
    batch.add_statistic({"echo_hits", StatisticKind::kSum, weighted_sum(echo.hit, ones)});
    batch.add_statistic({"most_tokens", StatisticKind::kMax, weighted_sum(ones, ones)});
    batch.add_statistic({"constants", StatisticKind::kSum, fill(hidden.program(), {DType::kF32, {3}}, 2.0)});
    return hidden;
  }

 private:
  const Model& base_;
  double coefficient_;
};

struct StepResult {
  double loss = 0;
  MetricValues figures;
  std::vector<float> gradient;  // gradient of the embedding
};

double value_of(const MetricValues& values, std::string_view name) {
  for (const auto& [each, value] : values) {
    if (each == name) return value;
  }
  ADD_FAILURE() << "there is no " << name;
  return 0;
}

// Runs a step over these micro-batches without the update.
StepResult step(const Model& model, const TensorStore& weights, std::span<const HostBatch> batches) {
  std::int64_t targets = 0;
  Capacity most;
  for (const HostBatch& batch : batches) {
    targets += batch.target_tokens;
    most = {std::max(most.tokens, batch.token_count()), std::max(most.sequences, batch.document_count())};
  }
  auto arena = std::make_shared<Arena>(test_device());
  const Optimizer optimizer(model, weights, arena, {});
  Executable executable(trace_training(model, {.capacity = most}), arena,
                        {.weights = &weights, .gradients = &optimizer.gradients()});
  LossLaunches launches(executable, batches.size());
  for (const HostBatch& batch : batches) launches.launch(batch, 1.0 / static_cast<double>(targets));
  const LossSums sums = launches.sums();
  StepResult result{.loss = sums.loss, .figures = {}, .gradient = {}};
  sums.figures.append_to(result.figures, 1.0);
  const std::vector<std::byte> bytes = optimizer.gradients().download("embedding");
  result.gradient.resize(bytes.size() / sizeof(float));
  std::memcpy(result.gradient.data(), bytes.data(), bytes.size());
  return result;
}

const std::vector<std::vector<TokenId>> kFirst{{1, 2, 3, 4, 5, 6, 7, 8}, {9, 8, 7, 6, 5}};
const std::vector<std::vector<TokenId>> kSecond{{3, 1, 3, 1, 3, 1}};

TEST(ModelFigures, ALossIsAddedByItsCoefficient) {
  const FixtureModel fixture("qwen3");
  const std::vector<HostBatch> batches{batch_of(kFirst)};
  const StepResult plain = step(*fixture.model, fixture.weights, batches);
  const StepResult none = step(Echoing(*fixture.model, 0.0), fixture.weights, batches);
  const StepResult half = step(Echoing(*fixture.model, 0.5), fixture.weights, batches);
  const StepResult whole = step(Echoing(*fixture.model, 1.0), fixture.weights, batches);
  EXPECT_TRUE(plain.figures.empty());
  EXPECT_EQ(none.loss, plain.loss);
  EXPECT_LT(relative_difference(none.gradient, plain.gradient), 1e-6);
  const double echo = value_of(half.figures, "echo_loss");
  EXPECT_GT(echo, 0.1);
  EXPECT_NEAR(half.loss, plain.loss + 0.5 * echo, 1e-5);
  EXPECT_NEAR(whole.loss, plain.loss + echo, 1e-5);
  // The gradient is linear in the coefficient and depends on it.
  std::vector<float> between(plain.gradient.size());
  for (std::size_t i = 0; i < between.size(); ++i) between[i] = (plain.gradient[i] + whole.gradient[i]) / 2;
  EXPECT_LT(relative_difference(half.gradient, between), 1e-5);
  EXPECT_GT(relative_difference(whole.gradient, plain.gradient), 0.1);
}

TEST(ModelFigures, MicroBatchesChangeNoLossAndNoFigure) {
  const FixtureModel fixture("qwen3");
  const Echoing model(*fixture.model, 0.5);
  std::vector<std::vector<TokenId>> all = kFirst;
  all.insert(all.end(), kSecond.begin(), kSecond.end());
  const StepResult together = step(model, fixture.weights, std::vector{batch_of(all)});
  const StepResult apart = step(model, fixture.weights, std::vector{batch_of(kFirst), batch_of(kSecond)});
  EXPECT_NEAR(together.loss, apart.loss, 1e-5);
  EXPECT_LT(relative_difference(together.gradient, apart.gradient), 1e-5);
  for (const char* name : {"echo_loss", "echo_entropy", "echo_hits"}) {
    EXPECT_NEAR(value_of(together.figures, name), value_of(apart.figures, name), 1e-5) << name;
  }
  EXPECT_EQ(value_of(together.figures, "most_tokens"), 19);
  EXPECT_EQ(value_of(apart.figures, "most_tokens"), 13);
  EXPECT_EQ(value_of(apart.figures, "constants/min"), 4);
  EXPECT_EQ(value_of(apart.figures, "constants/mean"), 4);
}

TEST(ModelFigures, NothingOfThemIsComputedWhereNothingIsLearned) {
  const FixtureModel fixture("qwen3");
  const auto text_of_forward = [](const Model& model) {
    LossTrace trace;
    trace_log_probabilities(trace, model, {16, 2}, {});
    return to_text(trace.program);
  };
  EXPECT_EQ(text_of_forward(Echoing(*fixture.model, 0.5)), text_of_forward(*fixture.model));
}

TEST(ModelFigures, AFigureOfAnotherTypeIsRefused) {
  Program program;
  const Tensor tokens = program.input("x", {DType::kF32, {{8, Count::tokens}}});
  const std::vector<ModelStatistic> wrong{{"load", StatisticKind::kSum, tokens}};
  EXPECT_THROW(output_statistics(program, wrong), Error);
}

}  // namespace
}  // namespace hone::test
