// Tests that completions without a gradient get no backward pass and change no bit of the gradient.
#include "rl/policy_runner.h"

#include <gtest/gtest.h>

#include "core/random.h"
#include "rl/small_run.h"
#include "support/device.h"
#include "support/models.h"
#include "support/paths.h"

namespace hone::test {
namespace {

constexpr std::size_t kCompletions = 8;

// Returns completions of random tokens. Those for which `has_advantage` is false have advantage 0.
std::vector<PolicySample> random_samples(const GrpoRun& run, const std::vector<bool>& has_advantage) {
  const auto vocab = static_cast<std::uint64_t>(run.model->shape().vocab_size);
  const RandomStream random(5, "policy runner");
  std::vector<PolicySample> samples(has_advantage.size());
  std::uint64_t at = 0;
  for (std::size_t s = 0; s < samples.size(); ++s) {
    for (std::size_t i = 0; i < 2 + s % 3; ++i)
      samples[s].prompt.push_back(static_cast<TokenId>(random.below(at++, vocab)));
    for (std::size_t i = 0; i < 3 + 5 * s % 7; ++i)
      samples[s].completion.push_back(static_cast<TokenId>(random.below(at++, vocab)));
    samples[s].logps.assign(samples[s].completion.size(), -1.0f);
    if (has_advantage[s]) samples[s].advantage = s % 2 == 0 ? 0.7 : -1.3;
  }
  return samples;
}

PolicyBatch weighted_batch(std::span<const PolicySample> samples) {
  LossNormaliser normaliser{.loss = GrpoLoss::kDrGrpo, .max_completion_length = 12};
  normaliser.count(std::vector<PolicySample>(kCompletions));  // the weight of a token in a step of this many
  PolicyBatch batch = make_policy_batch(samples);
  set_loss_weights(batch, samples, normaliser);
  return batch;
}

// A run whose workspace is allocated and holds the weights of its folder.
struct AllocatedRun {
  explicit AllocatedRun(const GrpoOptions& options) : run(make_run(options, 1)), workspace(trace_run(run)) {
    workspace.provide(kWeightStore, load_weights(*run.model, *run.initial, run.dtype, test_device()));
    workspace.allocate(test_device());
    workspace.enter(Region::kTrain);
  }
  GrpoRun run;
  Workspace workspace;

  // Returns the bytes of all gradients after a step, and the step's results.
  std::pair<std::vector<std::byte>, PolicyTotals> train(const PolicyBatch& batch) {
    TensorStore& gradients = workspace.store(kGradientStore);
    gradients.fill_zero();
    PolicyTotals totals = PolicyRunner(run, workspace).train(batch, {true, true});
    std::vector<std::byte> bytes;
    for (const NamedType& tensor : gradients.tensors()) {
      const std::vector<std::byte> one = gradients.download(tensor.name);
      bytes.insert(bytes.end(), one.begin(), one.end());
    }
    return {bytes, std::move(totals)};
  }
};

GrpoOptions options_of(const TemporaryDirectory& directory) {
  GrpoOptions options = small_options(directory.path());
  options.gradient_accumulation_steps = 2;
  return options;
}

TEST(PolicyRunner, CompletionsWithoutAGradientGetAForwardPassOnly) {
  const TemporaryDirectory directory;
  AllocatedRun allocated(options_of(directory));
  const std::vector<bool> chosen{true, false, false, true, true, false, true, false};
  const std::vector<PolicySample> all = random_samples(allocated.run, chosen);
  std::vector<PolicySample> learning;
  std::vector<PolicySample> silent;
  for (std::size_t s = 0; s < all.size(); ++s) (chosen[s] ? learning : silent).push_back(all[s]);

  const auto [gradient, totals] = allocated.train(weighted_batch(all));
  const auto [wanted, of_learning] = allocated.train(weighted_batch(learning));
  const PolicyRunner runner(allocated.run, allocated.workspace);
  const PolicyTotals of_silent = runner.evaluate(weighted_batch(silent));
  EXPECT_EQ(gradient, wanted) << "bytes of the gradient";
  EXPECT_DOUBLE_EQ(totals.flops, of_learning.flops + of_silent.flops);
  EXPECT_LT(of_silent.flops, of_learning.flops / 2);
  EXPECT_NEAR(totals.loss, of_learning.loss + of_silent.loss, 1e-6);

  // The metrics are those of the step in its own order.
  NamedValues metrics = totals.metrics.values();
  std::erase_if(metrics, [](const auto& metric) { return metric.first.starts_with("sampling/"); });
  EXPECT_EQ(metrics, runner.evaluate(weighted_batch(all)).metrics.values());
}

TEST(PolicyRunner, AStepWithoutAnyGradientLeavesItZero) {
  const TemporaryDirectory directory;
  AllocatedRun allocated(options_of(directory));
  const auto [gradient, totals] =
      allocated.train(weighted_batch(random_samples(allocated.run, std::vector<bool>(kCompletions, false))));
  EXPECT_EQ(gradient, std::vector<std::byte>(gradient.size()));
  EXPECT_EQ(totals.loss, 0);
  EXPECT_FALSE(totals.metrics.values().empty());
}

TEST(PolicyRunner, TermsWithoutAdvantagesGiveEverySampleAGradient) {
  const TemporaryDirectory directory;
  const GrpoRun run = make_run(options_of(directory), 1);
  std::vector<PolicySample> samples = random_samples(run, {true, false, true});
  PolicyBatch batch = weighted_batch(samples);
  EXPECT_EQ(split_by_gradient(batch, false).with_gradient, (std::vector<std::size_t>{0, 2}));
  EXPECT_EQ(split_by_gradient(batch, false).without_gradient, (std::vector<std::size_t>{1}));
  EXPECT_EQ(split_by_gradient(batch, true).with_gradient, (std::vector<std::size_t>{0, 1, 2}));
  batch.weights.assign(batch.weights.size(), 0.0f);  // masked
  EXPECT_TRUE(split_by_gradient(batch, false).with_gradient.empty());
}

}  // namespace
}  // namespace hone::test
