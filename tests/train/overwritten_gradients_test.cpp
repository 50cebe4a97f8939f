// Runs whose first micro-batches overwrite the gradients of matrices have the bits of runs that clear them.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <vector>

#include "model/lora.h"
#include "train/trained_mixture.h"

namespace hone::test {
namespace {

// The same steps of both runs: one and three micro-batches in both capacities, in some of which experts have no rows; a
// step that is skipped, its weights being infinite, one whose gradients are discarded, and one without micro-batches.
void expect_same_runs(const MixtureRunOptions& options) {
  TrainedMixture clearing(options, false);
  TrainedMixture overwriting(options, true);
  ASSERT_TRUE(clearing.experts().empty());
  ASSERT_FALSE(overwriting.experts().empty());
  const auto expect_same = [&](const char* what) {
    EXPECT_EQ(clearing.losses, overwriting.losses) << what;
    EXPECT_EQ(clearing.norms.back(), overwriting.norms.back()) << what;
    ASSERT_TRUE(clearing.weights() == overwriting.weights()) << what;
  };
  const auto step = [&](const char* what, const std::vector<std::int64_t>& tokens) {
    const std::vector<std::byte> before = overwriting.weights();
    EXPECT_TRUE(clearing.step(tokens)) << what;
    EXPECT_TRUE(overwriting.step(tokens)) << what;
    expect_same(what);
    EXPECT_TRUE(tokens.empty() || before != overwriting.weights()) << what;
  };
  step("one micro-batch", {8});
  const auto [none, all] = clearing.rows_without_gradient();
  EXPECT_EQ(none, all) << "the update clears";
  EXPECT_LT(overwriting.rows_without_gradient().first, all) << "the update leaves the gradients alone";
  step("two tokens", {2});
  EXPECT_GT(overwriting.rows_without_gradient().first, 0) << "experts without rows";
  step("three micro-batches", {3, 8, 2});
  step("three more", {2, 2, 2});
  step("one micro-batch again", {3});
  for (TrainedMixture* run : {&clearing, &overwriting}) {
    EXPECT_FALSE(run->step(std::array<std::int64_t, 2>{4, 2}, std::numeric_limits<double>::infinity()));
    run->losses.clear();  // not a number
    run->norms.clear();
  }
  EXPECT_TRUE(clearing.weights() == overwriting.weights()) << "skipped";
  step("after a skipped step", {2});
  for (TrainedMixture* run : {&clearing, &overwriting}) {
    run->launch(std::array<std::int64_t, 1>{8});
    run->optimizer().discard();
  }
  step("after discarded gradients", {2});
  step("no micro-batch", {});
  step("after no micro-batch", {3, 2});
}

TEST(OverwrittenGradients, ChangeNoBitOfARun) {
  for (const std::string_view model : {"qwen3_moe", "mixtral", "deepseek_v2", "deepseek_v3"}) {
    SCOPED_TRACE(model);
    expect_same_runs(
        {.model = model,
         .optimizer = {.moments = MomentFormat::kAsWeights, .gradients = GradientAccumulation::kAsWeights}});
    expect_same_runs({.model = model, .dtype = DType::kF32});
  }
}

TEST(OverwrittenGradients, ChangeNoBitWithAnyOptimizer) {
  for (const GradientAccumulation gradients : {GradientAccumulation::kWide, GradientAccumulation::kAsWeights}) {
    expect_same_runs({.optimizer = {.gradients = gradients}});
    expect_same_runs({.optimizer = {.moments = MomentFormat::kInt8, .gradients = gradients}});
    expect_same_runs({.optimizer = {.rule = UpdateRule::kSgd, .sgd = {.momentum = 0.9}, .gradients = gradients}});
  }
  expect_same_runs({.recompute = Recompute::kLayers});
}

TEST(OverwrittenGradients, TakeTheMemoryOfTheFlag) {
  TrainedMixture clearing({}, false);
  TrainedMixture overwriting({}, true);
  const MemoryBreakdown before = clearing.workspace().memory();
  const MemoryBreakdown after = overwriting.workspace().memory();
  EXPECT_EQ(after.gradients - before.gradients, align_up(sizeof(float)));
  EXPECT_EQ(after.total() - before.total(), align_up(sizeof(float)));
}

// All gradients of experts and linear layers, but none of adapters, on one device and with several that have whole
// weights; none where weights, gradients or states are divided.
TEST(OverwrittenGradients, AreThoseOfWholeMatrices) {
  const FixtureModel fixture("qwen3_moe");
  const auto count = [&](const TrainingOptions& options) {
    return overwritten_gradients(*fixture.model, optimizer_options(options)).size();
  };
  TrainingOptions options;
  std::size_t matrices = 0;
  for (const WeightSpec& spec : fixture.model->weights()) {
    matrices += spec.kind == WeightKind::expert || spec.kind == WeightKind::linear;
  }
  EXPECT_EQ(matrices, 12u);
  EXPECT_EQ(count(options), matrices);
  options.num_processes = 4;
  EXPECT_EQ(count(options), matrices);
  for (const std::int64_t stage : {1, 2, 3}) {
    options.zero_stage = stage;
    EXPECT_EQ(count(options), 0u);
  }
  options.zero_stage = 0;
  for (std::int64_t TrainingOptions::* size :
       {&TrainingOptions::tensor_parallel_size, &TrainingOptions::pipeline_parallel_size,
        &TrainingOptions::expert_parallel_size}) {
    options.*size = 2;
    EXPECT_EQ(count(options), 0u);
    options.*size = 1;
  }
  const LoraModel adapter(std::move(FixtureModel("qwen3").model), {});
  EXPECT_TRUE(overwritten_gradients(adapter, optimizer_options(options)).empty());
}

}  // namespace
}  // namespace hone::test
