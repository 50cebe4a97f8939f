// Dropout in training: the masks depend only on seed, step and micro-batch.
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json_value.h"
#include "support/device.h"
#include "support/models.h"
#include "train/loss_program.h"
#include "train/optimizer.h"

namespace hone::test {
namespace {

std::unique_ptr<Model> dropping(const FixtureModel& fixture, double probability) {
  Json config = fixture.model->config();
  config["embd_pdrop"] = probability;
  config["resid_pdrop"] = probability;
  return family_registry().create(config);
}

struct DropoutTrace {
  std::vector<double> losses;
  std::vector<std::byte> weights;
  bool operator==(const DropoutTrace&) const = default;
};

constexpr double kWeight = 1.0 / 42;

DropoutTrace train_steps(double probability, Recompute recompute, std::uint64_t seed, DType dtype = DType::kF32) {
  FixtureModel fixture("gpt2", dtype);
  const std::unique_ptr<Model> model = dropping(fixture, probability);
  const HostBatch batch = fixture.batch();
  auto arena = std::make_shared<Arena>(test_device());
  Optimizer optimizer(*model, fixture.weights, arena, {});
  Executable executable(
      trace_training(*model, {.capacity = {batch.token_count(), batch.document_count()},
                              .compile = {.dtype = dtype, .device = test_device().kind(), .recompute = recompute}}),
      arena, {.weights = &fixture.weights, .gradients = &optimizer.gradients()});
  DropoutTrace trace;
  for (std::int64_t step = 0; step < 3; ++step) {
    LossLaunches launches(executable, 2, seed, step);
    launches.launch(batch, kWeight / 2);
    launches.launch(batch, kWeight / 2);
    trace.losses.push_back(launches.sums().loss);
    optimizer.update(1e-3, 1.0);
  }
  for (const NamedType& tensor : fixture.weights.tensors()) {
    const std::vector<std::byte> bytes = fixture.weights.download(tensor.name);
    trace.weights.insert(trace.weights.end(), bytes.begin(), bytes.end());
  }
  return trace;
}

TEST(DropoutTraining, RecomputationDrawsTheSame) {
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const DropoutTrace kept = train_steps(0.2, Recompute::kNone, 5, dtype);
    EXPECT_TRUE(train_steps(0.2, Recompute::kNone, 5, dtype) == kept);
    EXPECT_TRUE(train_steps(0.2, Recompute::kLayers, 5, dtype) == kept);
    EXPECT_FALSE(train_steps(0.2, Recompute::kNone, 6, dtype) == kept);
    EXPECT_FALSE(train_steps(0.0, Recompute::kNone, 5, dtype) == kept);
  }
}

TEST(DropoutTraining, StepsAndMicroBatchesDrawAnew) {
  FixtureModel fixture("gpt2");
  const std::unique_ptr<Model> model = dropping(fixture, 0.2);
  const HostBatch batch = fixture.batch();
  auto arena = std::make_shared<Arena>(test_device());
  Optimizer optimizer(*model, fixture.weights, arena, {});
  Executable executable(trace_training(*model, {.capacity = {batch.token_count(), batch.document_count()}}), arena,
                        {.weights = &fixture.weights, .gradients = &optimizer.gradients()});
  const auto loss = [&](std::int64_t step, int micro_batches) {
    LossLaunches launches(executable, 2, 1, step);
    for (int i = 0; i < micro_batches; ++i) launches.launch(batch, kWeight);
    return launches.sums().loss;
  };
  const double first = loss(0, 1);
  EXPECT_EQ(loss(0, 1), first);
  EXPECT_NE(loss(1, 1), first);
  EXPECT_NE(loss(0, 2), 2 * first);
}

TEST(DropoutTraining, EvaluationDropsNothing) {
  FixtureModel fixture("gpt2");
  const HostBatch batch = fixture.batch();
  const LossProgramOptions options{.capacity = {batch.token_count(), batch.document_count()}};
  const auto loss = [&](const Model& model) {
    Program program = trace_evaluation(model, options);
    EXPECT_EQ(program.find(Role::kInput, kDropoutInput), kNoValue);
    Executable executable(std::move(program), std::make_shared<Arena>(test_device()), {.weights = &fixture.weights});
    return run_loss(executable, batch, kWeight).loss;
  };
  EXPECT_EQ(loss(*dropping(fixture, 0.5)), loss(*fixture.model));
  EXPECT_EQ(trace_training(*fixture.model, options).find(Role::kInput, kDropoutInput), kNoValue);
}

TEST(DropoutTraining, RefusesProbabilitiesThatAreNone) {
  const FixtureModel fixture("gpt2");
  EXPECT_THROW((void)dropping(fixture, 1.0), Error);
  EXPECT_THROW((void)dropping(fixture, -0.1), Error);
}

}  // namespace
}  // namespace hone::test
