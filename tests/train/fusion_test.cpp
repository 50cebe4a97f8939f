// Fusion changes the nodes of a training program but no bit of its results.
#include "passes/fusion.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ops/fill/fill.h"
#include "ops/scale/scale.h"
#include "ops/weighted_sum/weighted_sum.h"
#include "passes/gradient.h"
#include "passes/precision.h"
#include "program/text.h"
#include "support/device.h"
#include "support/models.h"
#include "train/loss_program.h"
#include "train/optimizer.h"

namespace hone::test {
namespace {

Program traced_loss(const Model& model, const Capacity& capacity, DType dtype) {
  LossTrace trace;
  trace_log_probabilities(trace, model, capacity, {.trainable = true});
  Program& program = trace.program;
  const Tensor weights = program.input("loss_weights", {DType::kF32, {{capacity.tokens, Count::tokens}}});
  program.output("loss", weighted_sum(scale(trace.logp, -1.0), weights));
  const Tensor counted = program.input("counted", weights.type());
  program.output("entropy", weighted_sum(trace.entropy, counted));
  program.output("hits", weighted_sum(trace.hit, counted));
  return with_precision(program, dtype);
}

Program with_gradients(Program program) {
  const Tensor loss = program.tensor(program.outputs().front().value);
  const GradientSeed seed{loss, fill(program, loss.type(), 1.0)};
  append_gradients(program, {&seed, 1});
  return program;
}

std::int64_t count_nodes(const Program& program, std::string_view op) {
  return std::count_if(program.nodes().begin(), program.nodes().end(),
                       [&](const Node& node) { return node.op->name() == op; });
}

std::vector<std::byte> bytes_of(const TensorStore& store) {
  std::vector<std::byte> all;
  for (const NamedType& tensor : store.tensors()) {
    const std::vector<std::byte> bytes = store.download(tensor.name);
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

struct FusionTrace {
  std::vector<double> losses;
  std::vector<std::vector<std::byte>> gradients;  // [steps]
  std::vector<std::byte> weights;                 // weights after the last step
};

FusionTrace train_steps(std::string_view name, DType dtype, bool fused) {
  FixtureModel fixture(name, dtype);
  const HostBatch batch = fixture.batch();
  Program program = traced_loss(*fixture.model, {batch.token_count(), batch.document_count()}, dtype);
  const std::int64_t layers = fixture.model->shape().num_hidden_layers;
  if (fused) program = fuse(program);
  EXPECT_EQ(count_nodes(program, "add_rms_norm") + count_nodes(program, "add_layer_norm"), fused ? layers : 0);
  auto arena = std::make_shared<Arena>(test_device());
  Optimizer optimizer(*fixture.model, fixture.weights, arena, {});
  Executable executable(with_gradients(std::move(program)), arena,
                        {.weights = &fixture.weights, .gradients = &optimizer.gradients()});
  FusionTrace trace;
  for (int step = 0; step < 3; ++step) {
    trace.losses.push_back(run_loss(executable, batch, 1.0 / static_cast<double>(batch.target_tokens)).loss);
    trace.gradients.push_back(bytes_of(optimizer.gradients()));
    optimizer.update(1e-3, 1.0);
  }
  trace.weights = bytes_of(fixture.weights);
  return trace;
}

TEST(Fusion, TrainsTheSameBits) {
  for (const std::string_view name : kFixtureModels) {
    for (const DType dtype : {DType::kF32, DType::kBf16}) {
      const FusionTrace parts = train_steps(name, dtype, false);
      const FusionTrace fused = train_steps(name, dtype, true);
      EXPECT_EQ(fused.losses, parts.losses) << name;
      EXPECT_TRUE(fused.gradients == parts.gradients) << name;
      EXPECT_TRUE(fused.weights == parts.weights) << name;
      EXPECT_NE(parts.gradients[0], parts.gradients[1]) << name;
    }
  }
}

// Fused nodes are recomputed layer by layer like unfused ones: fusion does not increase the memory of activations.
TEST(Fusion, RecomputationKeepsNoMore) {
  const FixtureModel fixture("qwen3");
  const Program parts = traced_loss(*fixture.model, {256, 4}, DType::kF32);
  const auto arena = [](const Program& program) {
    return plan_memory(recompute(with_gradients(program), Recompute::kLayers, 0, DeviceKind::kCpu), DeviceKind::kCpu)
        .arena;
  };
  EXPECT_LE(arena(fuse(parts)), arena(parts));
}

// Without recomputation, the addition at the end of a layer is fused with the norm at the start of the next layer.
TEST(TrainingProgram, FusesAcrossLayersWhereNothingIsMadeAgain) {
  const FixtureModel fixture("qwen3");
  const std::int64_t layers = fixture.model->shape().num_hidden_layers;
  const Program kept = trace_training(*fixture.model, {.capacity = {64, 3}});
  EXPECT_EQ(count_nodes(kept, "add_rms_norm"), 2 * layers);
  const Program again =
      trace_training(*fixture.model, {.capacity = {64, 3}, .compile = {.recompute = Recompute::kLayers}});
  EXPECT_EQ(count_nodes(again, "add_rms_norm"), 2 * layers);  // one per layer, computed twice
  EXPECT_EQ(count_nodes(again, "rms_norm"), 2 * layers + 1);
}

// The head is not recomputed: it costs as much as many layers and stores almost no activations.
TEST(TrainingProgram, RecomputationLeavesTheHeadAlone) {
  const FixtureModel fixture("qwen3");
  const LossProgramOptions options{.capacity = {64, 3}, .compile = {.recompute = Recompute::kLayers}};
  const Program program = trace_training(*fixture.model, options);
  EXPECT_EQ(count_nodes(program, "linear_logprobs"), 0);
  EXPECT_EQ(count_nodes(program, "linear_logprobs_backward"), 0);
  EXPECT_EQ(count_nodes(program, "linear_logprobs_joint"), 1);
  EXPECT_EQ(count_nodes(program, "attention"), 2 * fixture.model->shape().num_hidden_layers);
}

TEST(TrainingProgram, LayersKeepAttentionWhereThereIsRoom) {
  const FixtureModel fixture("qwen3");
  const std::int64_t layers = fixture.model->shape().num_hidden_layers;
  const auto trace = [&](std::size_t budget, bool offload) {
    return trace_training(
        *fixture.model,
        {.capacity = {64, 3},
         .compile = {.recompute = Recompute::kLayers, .activation_budget = budget, .offload = offload}});
  };
  const auto arena = [](const Program& program) { return plan_memory(program, DeviceKind::kCpu).arena; };
  const Program least = trace(0, false);
  const Program most = trace(std::size_t{1} << 40, false);
  EXPECT_EQ(count_nodes(least, "attention"), 2 * layers);
  EXPECT_EQ(count_nodes(most, "attention"), layers);
  EXPECT_EQ(count_nodes(most, "rms_norm"), count_nodes(least, "rms_norm"));
  EXPECT_EQ(count_nodes(most, "linear"), count_nodes(least, "linear"));
  ASSERT_GT(arena(most), arena(least));
  EXPECT_EQ(to_text(trace(arena(most), false)), to_text(most));
  EXPECT_LT(arena(trace(arena(most) - 1, false)), arena(most));
  // With offloading, attention is recomputed too, because keeping its results would transfer them to the host.
  EXPECT_EQ(count_nodes(trace(std::size_t{1} << 40, true), "attention"), 2 * layers);
}

TEST(TrainingProgram, TextParsesBack) {
  for (const std::string_view name : kFixtureModels) {
    const FixtureModel fixture(name);
    const Program program = trace_training(*fixture.model, {.capacity = {64, 3}, .compile = {.dtype = DType::kBf16}});
    const std::string text = to_text(program);
    const Program parsed = program_from_text(text);
    EXPECT_EQ(to_text(parsed), text) << name;
    ASSERT_EQ(parsed.values().size(), program.values().size());
    for (std::size_t i = 0; i < parsed.values().size(); ++i) {
      EXPECT_EQ(parsed.values()[i].alias_of, program.values()[i].alias_of) << name << " %" << i;
      EXPECT_EQ(parsed.values()[i].trainable, program.values()[i].trainable) << name << " %" << i;
    }
    EXPECT_EQ(plan_memory(parsed, DeviceKind::kCpu).value_offset, plan_memory(program, DeviceKind::kCpu).value_offset);
  }
}

}  // namespace
}  // namespace hone::test
