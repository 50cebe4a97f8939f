// Bitwise invariants of training, and differences that may only be rounding.
#include <gtest/gtest.h>

#include <cstring>

#include "core/random.h"
#include "support/device.h"
#include "support/models.h"
#include "train/loss_program.h"
#include "train/optimizer.h"
#include "train/setup.h"

namespace hone::test {
namespace {

// Losses of a few steps, and the weights after the last one.
struct Trace {
  std::vector<double> losses;
  std::vector<std::byte> weights;
  std::size_t arena = 0;
  std::size_t offloaded = 0;  // bytes
};

Trace train_steps(Recompute recompute, std::size_t budget, bool offload = false, std::string_view model = "qwen3",
                  DType dtype = DType::kF32) {
  constexpr int kSteps = 4;
  FixtureModel fixture(model, dtype);
  const HostBatch batch = fixture.batch();
  Workspace workspace(test_device().kind());
  workspace.add_weights(kWeightStore, fixture.weights.tensors());
  add_update(workspace, *fixture.model, dtype, {});
  workspace.add(kTrainingProgram,
                trace_training(*fixture.model, {.capacity = {batch.token_count(), batch.document_count()},
                                                .compile = {.dtype = dtype,
                                                            .device = test_device().kind(),
                                                            .recompute = recompute,
                                                            .activation_budget = budget,
                                                            .offload = offload}}),
                training_use());
  workspace.provide(kWeightStore, fixture.weights.view());
  workspace.allocate(test_device());
  Optimizer optimizer(workspace, *fixture.model, {});
  Trace trace;
  trace.offloaded = workspace.memory().offloaded;
  Executable& executable = workspace.executable(kTrainingProgram);
  trace.arena = executable.plan().arena;
  for (int step = 0; step < kSteps; ++step) {
    trace.losses.push_back(run_loss(executable, batch, 1.0 / static_cast<double>(batch.target_tokens)).loss);
    optimizer.update(1e-3, 1.0);
  }
  for (const NamedType& tensor : fixture.weights.tensors()) {
    const std::vector<std::byte> bytes = fixture.weights.download(tensor.name);
    trace.weights.insert(trace.weights.end(), bytes.begin(), bytes.end());
  }
  return trace;
}

TEST(Exactness, RecomputationChangesMemoryAndNoBit) {
  const Trace none = train_steps(Recompute::kNone, 0);
  const Trace again = train_steps(Recompute::kNone, 0);
  const Trace layers = train_steps(Recompute::kLayers, 0);
  EXPECT_EQ(none.losses, again.losses);
  EXPECT_EQ(none.losses, layers.losses);
  EXPECT_EQ(none.weights, layers.weights);
  EXPECT_LT(layers.arena, none.arena);
  const Trace with_attention = train_steps(Recompute::kLayers, none.arena);
  EXPECT_EQ(none.losses, with_attention.losses);
  EXPECT_EQ(none.weights, with_attention.weights);
  const std::size_t budget = (none.arena + layers.arena) / 2;
  const Trace automatic = train_steps(Recompute::kAutomatic, budget);
  EXPECT_EQ(none.losses, automatic.losses);
  EXPECT_EQ(none.weights, automatic.weights);
  EXPECT_LE(automatic.arena, budget);
  EXPECT_GT(automatic.arena, layers.arena / 2);
  EXPECT_EQ(train_steps(Recompute::kAutomatic, none.arena).arena, none.arena);
  EXPECT_GT(none.losses.front(), none.losses.back());
}

TEST(Exactness, MixturesRepeatTheirBits) {
  for (const std::string_view model : {"qwen3_moe", "mixtral", "deepseek_v2_grouped_tied", "deepseek_v3"}) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      const Trace none = train_steps(Recompute::kNone, 0, false, model, dtype);
      for (const Trace& other : {train_steps(Recompute::kNone, 0, false, model, dtype),
                                 train_steps(Recompute::kLayers, 0, false, model, dtype),
                                 train_steps(Recompute::kLayers, 0, true, model, dtype)}) {
        EXPECT_EQ(none.losses, other.losses) << model << ' ' << name_of(dtype);
        EXPECT_EQ(none.weights, other.weights) << model << ' ' << name_of(dtype);
      }
      EXPECT_GT(none.losses.front(), none.losses.back()) << model << ' ' << name_of(dtype);
    }
  }
}

TEST(Exactness, OffloadChangesMemoryAndNoBit) {
  for (const Recompute policy : {Recompute::kNone, Recompute::kLayers}) {
    const Trace kept = train_steps(policy, 0);
    const Trace offloaded = train_steps(policy, 0, true);
    EXPECT_EQ(kept.losses, offloaded.losses);
    EXPECT_EQ(kept.weights, offloaded.weights);
    EXPECT_EQ(kept.offloaded, 0u);
    EXPECT_GT(offloaded.offloaded, 0u);
    EXPECT_LE(offloaded.arena, kept.arena);
  }
}

std::vector<float> gradients_of(FixtureModel& fixture, std::span<const HostBatch> micro_batches,
                                const Capacity& capacity) {
  std::int64_t targets = 0;
  for (const HostBatch& batch : micro_batches) targets += batch.target_tokens;
  auto arena = std::make_shared<Arena>(test_device());
  Optimizer optimizer(*fixture.model, fixture.weights, arena, {});
  Executable executable(trace_training(*fixture.model, {.capacity = capacity}), arena,
                        {.weights = &fixture.weights, .gradients = &optimizer.gradients()});
  arena->device().fill(arena->base(), 0x7F, arena->bytes());
  std::vector<float> values{0.0f};
  for (const HostBatch& batch : micro_batches) {
    values[0] += static_cast<float>(run_loss(executable, batch, 1.0 / static_cast<double>(targets)).loss);
  }
  for (const NamedType& tensor : optimizer.gradients().tensors()) {
    const std::vector<std::byte> bytes = optimizer.gradients().download(tensor.name);
    const auto* begin = reinterpret_cast<const float*>(bytes.data());
    values.insert(values.end(), begin, begin + bytes.size() / sizeof(float));
  }
  return values;
}

void expect_packed_as_alone(std::string_view model) {
  FixtureModel fixture(model);
  const std::vector<std::vector<TokenId>> documents{{5, 9, 2, 44, 17, 3}, {8, 1}, {30, 31, 32, 33, 34, 35, 36, 37, 38}};
  const HostBatch packed = batch_of(documents);
  const std::vector<float> together =
      gradients_of(fixture, {&packed, 1}, {packed.token_count(), packed.document_count()});
  std::vector<HostBatch> alone;
  for (const auto& document : documents) alone.push_back(batch_of({&document, 1}));
  const std::vector<float> apart = gradients_of(fixture, alone, {16, 2});
  EXPECT_LE(relative_difference(apart, together), 1e-5);
  // Unused capacity changes no bit on the CPU. On a GPU, where matmuls cover the whole capacity, it changes rounding.
  const std::vector<float> roomy = gradients_of(fixture, {&packed, 1}, {64, 9});
  if (test_device().kind() == DeviceKind::kCpu) {
    EXPECT_EQ(roomy, together);
  } else {
    EXPECT_LE(relative_difference(roomy, together), 1e-6);
  }
}

TEST(Exactness, PackedDocumentsCountAsAlone) { expect_packed_as_alone("qwen2"); }

TEST(Exactness, PackedDocumentsOfAMixtureCountAsAlone) { expect_packed_as_alone("qwen3_moe"); }

TEST(Exactness, PackedDocumentsOfDeepseekCountAsAlone) {
  expect_packed_as_alone("deepseek_v2");
  expect_packed_as_alone("deepseek_v3");
}

// Returns new documents of a small grammar for each step, on which the loss falls but stays well above 0.
HostBatch grammar_batch(std::uint64_t step) {
  const RandomStream random(3, "grammar", step);
  std::vector<std::vector<TokenId>> documents(6);
  std::uint64_t at = 0;
  for (std::vector<TokenId>& document : documents) {
    document.push_back(static_cast<TokenId>(random.below(at++, 64)));
    for (int i = 1; i < 24; ++i) {
      const auto last = static_cast<std::uint64_t>(document.back());
      document.push_back(static_cast<TokenId>((last * 5 + random.below(at++, 4)) % 64));
    }
  }
  return batch_of(documents);
}

std::vector<double> grammar_losses(DType dtype, const OptimizerOptions& options = {}, Device& device = test_device()) {
  FixtureModel fixture("qwen3", dtype, device);
  const Capacity capacity{6 * 24, 6};
  auto arena = std::make_shared<Arena>(device);
  Optimizer optimizer(*fixture.model, fixture.weights, arena, options);
  Executable executable(
      trace_training(
          *fixture.model,
          {.capacity = capacity, .compile = {.dtype = dtype, .device = device.kind(), .gradients = options.gradients}}),
      arena, {.weights = &fixture.weights, .gradients = &optimizer.gradients()});
  std::vector<double> losses;
  for (std::uint64_t step = 0; step < 300; ++step) {
    const HostBatch batch = grammar_batch(step);
    losses.push_back(run_loss(executable, batch, 1.0 / static_cast<double>(batch.target_tokens)).loss);
    optimizer.update(1e-3, 1.0);
  }
  return losses;
}

// Losses in bf16, on any device, stay close to those of f32 on the CPU.
TEST(Exactness, Bf16TracksF32) {
  const std::vector<double> wide = grammar_losses(DType::kF32, {}, cpu_device());
  const std::vector<double> narrow = grammar_losses(DType::kBf16);
  EXPECT_LT(wide.back(), 0.5 * wide.front());
  for (std::size_t step = 0; step < wide.size(); ++step) {
    EXPECT_NEAR(narrow[step], wide[step], 0.01 * wide[step]) << "step " << step;
  }
}

// MomentFormat, gradients and weights in bf16 without master weights: stochastic rounding preserves small updates.
TEST(Exactness, StatesInBf16TrackF32) {
  const std::vector<double> wide = grammar_losses(DType::kF32);
  const std::vector<double> narrow = grammar_losses(
      DType::kBf16, {.moments = MomentFormat::kAsWeights, .gradients = GradientAccumulation::kAsWeights});
  for (std::size_t step = 0; step < wide.size(); ++step) {
    EXPECT_NEAR(narrow[step], wide[step], 0.05 * wide[step]) << "step " << step;
  }
}

}  // namespace
}  // namespace hone::test
