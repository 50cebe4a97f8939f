// Runs whose first micro-batches overwrite the gradients of experts have the bits of runs that clear them.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "core/random.h"
#include "model/weight_kind.h"
#include "support/device.h"
#include "support/models.h"
#include "train/loss_program.h"
#include "train/optimizer.h"
#include "train/setup.h"

namespace hone::test {
namespace {

constexpr std::int64_t kMost = 8;  // tokens of a micro-batch

struct RunOptions {
  std::string_view model = "qwen3_moe";
  DType dtype = DType::kBf16;
  OptimizerOptions optimizer;
  Recompute recompute = Recompute::kNone;
};

// A model, its programs in two capacities and its optimizer.
class TrainedMixture {
 public:
  TrainedMixture(const RunOptions& options, bool overwrites)
      : fixture_(options.model, options.dtype), workspace_(test_device().kind()) {
    OptimizerOptions optimizer = options.optimizer;
    optimizer.overwrites = overwrites;
    experts_ = overwritten_gradients(*fixture_.model, optimizer);
    workspace_.add_weights(kWeightStore, fixture_.weights.tensors());
    add_update(workspace_, *fixture_.model, options.dtype, optimizer);
    const auto trace = [&](std::int64_t tokens) {
      return trace_training(*fixture_.model, {.capacity = {tokens, 2},
                                              .compile = {.dtype = options.dtype,
                                                          .device = test_device().kind(),
                                                          .recompute = options.recompute,
                                                          .gradients = optimizer.gradients,
                                                          .overwritten = experts_}});
    };
    add_sized(workspace_, kTrainingProgram, std::vector<std::int64_t>{kMost / 2, kMost}, trace, training_use());
    workspace_.provide(kWeightStore, fixture_.weights.view());
    workspace_.allocate(test_device());
    optimizer_ = std::make_unique<Optimizer>(workspace_, *fixture_.model, optimizer);
  }

  // Runs a step of these numbers of tokens; `weight` is that of each target.
  bool step(std::span<const std::int64_t> tokens, double weight = 0.25) {
    launch(tokens, weight);
    const UpdateResult result = optimizer_->update(1e-2, 1.0);
    norms.push_back(result.grad_norm);
    if (!result.applied) optimizer_->clear_guard();
    return result.applied;
  }
  void launch(std::span<const std::int64_t> tokens, double weight = 0.25) {
    LossLaunches launches({workspace_, kTrainingProgram}, tokens.size());
    for (const std::int64_t count : tokens) {
      const RandomStream random(7, "tokens", drawn_++);
      std::vector<TokenId> document(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < document.size(); ++i) document[i] = static_cast<TokenId>(random.below(i, 300));
      launches.launch(batch_of({&document, 1}), weight);
    }
    losses.push_back(launches.sums().loss);
  }
  Optimizer& optimizer() { return *optimizer_; }
  Workspace& workspace() { return workspace_; }
  [[nodiscard]] const OverwrittenGradients& experts() const { return experts_; }

  [[nodiscard]] std::vector<std::byte> weights() const { return bits_of(fixture_.weights); }
  // Rows of experts' matrices whose gradient is 0, and all of them.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> rows_without_gradient() {
    std::int64_t none = 0;
    std::int64_t all = 0;
    for (const WeightSpec& spec : fixture_.model->weights()) {
      if (spec.kind != WeightKind::expert) continue;
      const std::vector<std::byte> bytes = optimizer_->gradients().download(spec.name);
      const auto row = static_cast<std::ptrdiff_t>(bytes.size()) / spec.shape[0];
      for (std::int64_t r = 0; r < spec.shape[0]; ++r, ++all) {
        const auto begin = bytes.begin() + r * row;
        none += std::all_of(begin, begin + row, [](std::byte each) { return each == std::byte{}; });
      }
    }
    return {none, all};
  }

  std::vector<double> losses;
  std::vector<double> norms;

 private:
  static std::vector<std::byte> bits_of(const TensorStore& store) {
    std::vector<std::byte> bits;
    for (const NamedType& tensor : store.tensors()) {
      const std::vector<std::byte> bytes = store.download(tensor.name);
      bits.insert(bits.end(), bytes.begin(), bytes.end());
    }
    return bits;
  }

  FixtureModel fixture_;
  Workspace workspace_;
  OverwrittenGradients experts_;
  std::unique_ptr<Optimizer> optimizer_;
  std::uint64_t drawn_ = 0;
};

// The same steps of both runs: one and three micro-batches in both capacities, in some of which experts have no rows; a
// step that is skipped, its weights being infinite, one whose gradients are discarded, and one without micro-batches.
void expect_same_runs(const RunOptions& options) {
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
  EXPECT_EQ(after.gradients - before.gradients, align_up(sizeof(std::int32_t)));
  EXPECT_EQ(after.total() - before.total(), align_up(sizeof(std::int32_t)));
}

// All gradients of experts, on one device and with several that have whole weights; none where weights, gradients or
// states are divided.
TEST(OverwrittenGradients, AreThoseOfWholeExperts) {
  const FixtureModel fixture("qwen3_moe");
  const auto count = [&](const TrainingOptions& options) {
    return overwritten_gradients(*fixture.model, optimizer_options(options)).size();
  };
  TrainingOptions options;
  std::size_t experts = 0;
  for (const WeightSpec& spec : fixture.model->weights()) experts += spec.kind == WeightKind::expert;
  EXPECT_EQ(experts, 4u);
  EXPECT_EQ(count(options), experts);
  options.num_processes = 4;
  EXPECT_EQ(count(options), experts);
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
  const FixtureModel dense("qwen3");
  EXPECT_TRUE(overwritten_gradients(*dense.model, optimizer_options(options)).empty());
}

}  // namespace
}  // namespace hone::test
