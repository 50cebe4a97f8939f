// Tests that a new compiler pass needs no change of existing files. The pass keeps matrices in shards, gathers them
// before their use and scatters their gradients afterwards, here over a single device. Results must not change by a
// bit.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "compile/compiler.h"
#include "core/error.h"
#include "ops/registry.h"
#include "ops/rows.h"
#include "ops/scale/scale.h"
#include "ops/weighted_sum/weighted_sum.h"
#include "program/gradient_builder.h"
#include "program/text.h"
#include "support/models.h"
#include "train/loss_program.h"

namespace hone::test {
namespace {

// (sum, gradient) -> sum + gradient, in place: accumulates a device's shard of a gradient.
class ToyScatter final : public Op {
 public:
  std::string_view name() const override { return "toy_scatter"; }
  OpCategory category() const override { return OpCategory::kCommunication; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override { return {required(inputs, 0, name())}; }
  std::optional<std::size_t> alias(std::size_t) const override { return 0; }
};
const ToyScatter kScatter;

// shard -> the whole matrix, which with one device is the same storage.
class ToyGather final : public Op {
 public:
  std::string_view name() const override { return "toy_gather"; }
  OpCategory category() const override { return OpCategory::kCommunication; }
  std::vector<Type> infer(InputTypes inputs, const Attributes&) const override { return {required(inputs, 0, name())}; }
  std::optional<std::size_t> alias(std::size_t) const override { return 0; }
  bool is_view() const override { return true; }
  void gradient(GradientBuilder& builder, const Node&) const override {
    const Tensor gradient = builder.output_gradient(0);
    if (!gradient || !builder.needs(0)) return;
    builder.set_accumulator(0, builder.program().append1(kScatter, {}, {builder.accumulator(0), gradient}));
  }
};
const ToyGather kGather;

void scatter(const KernelCall& call) {
  float* sums = call.out(0).as<float>();
  const float* gradient = call.in(1).as<float>();
  for (std::int64_t i = 0; i < call.in(1).elements(); ++i) sums[i] += gradient[i];
}

// Inserts a gather before each linear layer of all programs except updates, which work on shards.
class Sharding final : public CompilePass {
 public:
  std::string_view name() const override { return "toy_sharding"; }
  PassStage place() const override { return PassStage::kTyped; }
  Program run(const Program& program, ProgramKind kind, const CompileOptions&) const override {
    if (kind == ProgramKind::kUpdate) return program;
    ProgramRewriter rewriter(program);
    for (const Node& node : program.nodes()) {
      if (node.op->name() != "linear") {
        rewriter.replay(node);
        continue;
      }
      std::vector<Tensor> inputs;
      for (const ValueId id : node.inputs) inputs.push_back(rewriter.mapped(id));
      rewriter.program().set_scope(node.scope);
      inputs[1] = rewriter.program().append1(kGather, {}, {inputs[1]});
      rewriter.map(node.outputs[0], rewriter.program().append(*node.op, node.attributes, inputs)[0]);
    }
    return rewriter.finish();
  }
};
const Sharding kSharding;

void register_toy_sharding() {
  static const bool once = [] {
    register_operations();
    op_registry().add(kGather);
    op_registry().add(kScatter);
    kernel_registry().add("toy_scatter", DeviceKind::kCpu, {scatter, {}});
    return true;
  }();
  (void)once;
}

struct StepBits {
  float loss = 0;
  std::vector<std::vector<std::byte>> gradients;
  std::string text;
};

// Runs one micro-batch with these passes.
StepBits step(const FixtureModel& fixture, const PassRegistry& passes, Recompute recompute) {
  const HostBatch batch = batch_of(std::vector<std::vector<TokenId>>{{1, 2, 3, 4, 5, 6, 7, 8}, {9, 8, 7, 6}});
  LossTrace trace;
  trace_log_probabilities(trace, *fixture.model, capacity_of(batch), {.trainable = true});
  const Tensor weights = trace.program.input("loss_weights", trace.logp.type());
  trace.program.output("loss", weighted_sum(scale(trace.logp, -1.0), weights));
  auto arena = std::make_shared<Arena>(test_device());
  const Optimizer optimizer(*fixture.model, fixture.weights, arena, {});
  Executable executable(Compiler({.recompute = recompute}, passes).training(std::move(trace.program), "loss"), arena,
                        {.weights = &fixture.weights, .gradients = &optimizer.gradients()});
  feed(executable, batch);
  executable.set<std::int32_t>("targets", batch.targets);
  executable.set<float>("loss_weights", batch.loss_weights);
  executable.run();
  StepBits bits;
  executable.get<float>("loss", {&bits.loss, 1});
  for (const NamedType& gradient : optimizer.gradients().tensors()) {
    bits.gradients.push_back(optimizer.gradients().download(gradient.name));
  }
  bits.text = to_text(executable.program());
  return bits;
}

TEST(ShardingPass, OverOneDeviceChangesNoBit) {
  if (test_device().kind() != DeviceKind::kCpu) GTEST_SKIP() << "the operations of this test have only CPU kernels";
  register_toy_sharding();
  PassRegistry passes;
  passes.add(kSharding);
  const FixtureModel fixture("qwen3");
  for (const Recompute recompute : {Recompute::kNone, Recompute::kLayers}) {
    const StepBits plain = step(fixture, PassRegistry(), recompute);
    const StepBits sharded = step(fixture, passes, recompute);
    EXPECT_EQ(plain.text.find("toy_gather"), std::string::npos);
    EXPECT_NE(sharded.text.find("toy_gather"), std::string::npos);
    EXPECT_NE(sharded.text.find("toy_scatter"), std::string::npos);
    EXPECT_EQ(std::memcmp(&plain.loss, &sharded.loss, sizeof(float)), 0);
    EXPECT_EQ(plain.gradients, sharded.gradients);
    EXPECT_EQ(to_text(program_from_text(sharded.text)), sharded.text);
  }
}

}  // namespace
}  // namespace hone::test
