#include "compile/compiler.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "ops/add/add.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/linear_logprobs/linear_logprobs.h"
#include "ops/registry.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/weighted_sum/weighted_sum.h"
#include "program/memory_plan.h"
#include "program/program.h"

namespace hone::test {
namespace {

Program traced() {
  register_operations();
  Program program;
  const Tensor tokens = program.input("tokens", {DType::kI32, {{8, Count::tokens}}});
  const Tensor x = embedding(tokens, program.weight("embedding", {DType::kF32, {32, 16}}));
  program.output("y", linear(x, program.weight("w", {DType::kF32, {16, 16}})));
  return program;
}

// A pass that records the kind and the weight type of the programs it receives and returns them unchanged.
class RecordingPass final : public CompilePass {
 public:
  RecordingPass(std::string name, PassStage place, std::vector<std::string>& seen)
      : name_(std::move(name)), place_(place), seen_(seen) {}
  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] PassStage place() const override { return place_; }
  [[nodiscard]] Program run(const Program& program, ProgramKind kind, const CompileOptions&) const override {
    const ValueId weight = program.find(Role::kWeight, "w");
    seen_.push_back(name_ + (kind == ProgramKind::kInference ? " inference " : " update ") +
                    std::string(name_of(program.value(weight).type.dtype)));
    return program;
  }

 private:
  std::string name_;
  PassStage place_;
  std::vector<std::string>& seen_;
};

TEST(Compiler, RunsFurtherPassesAtTheirPlaces) {
  std::vector<std::string> seen;
  const RecordingPass before("before", PassStage::kTraced, seen);
  const RecordingPass typed("typed", PassStage::kTyped, seen);
  const RecordingPass last("last", PassStage::kFinished, seen);
  PassRegistry passes;
  passes.add(last);
  passes.add(typed);
  passes.add(before);
  EXPECT_THROW(passes.add(before), Defect);
  const Compiler compiler({.dtype = DType::kBf16}, passes);
  const Program compiled = compiler.inference(traced());
  EXPECT_EQ(seen, (std::vector<std::string>{"before inference f32", "typed inference bf16", "last inference bf16"}));
  EXPECT_EQ(compiled.value(compiled.find(Role::kWeight, "w")).type.dtype, DType::kBf16);
  seen.clear();
  (void)compiler.update(traced());
  EXPECT_EQ(seen, (std::vector<std::string>{"before update f32", "typed update f32", "last update f32"}));
}

TEST(Compiler, AWeightMayKeepItsType) {
  Program program = traced();
  (void)program.weight("router", {DType::kF32, {4, 16}}, true, true);
  const Program compiled = Compiler({.dtype = DType::kBf16}).inference(std::move(program));
  EXPECT_EQ(compiled.value(compiled.find(Role::kWeight, "w")).type.dtype, DType::kBf16);
  EXPECT_EQ(compiled.value(compiled.find(Role::kWeight, "router")).type.dtype, DType::kF32);
}

// A model of layers whose inside can be recomputed, and its loss.
Program layered() {
  register_operations();
  constexpr std::int64_t kWidth = 64;
  constexpr std::int64_t kTokens = 256;
  Program program;
  Tensor x = program.input("x", {DType::kF32, {{kTokens, Count::tokens}, kWidth}});
  for (int layer = 0; layer < 8; ++layer) {
    const Scope scope(program, text_of("layers.", layer));
    Tensor h = x;
    for (int i = 0; i < 3; ++i) {
      const std::string name = text_of("layers.", layer, ".", i);
      h = rms_norm(h, program.weight(name + ".norm", {DType::kF32, {kWidth}}), {});
      h = linear(h, program.weight(name, {DType::kF32, {kWidth, kWidth}}));
    }
    x = x + h;
  }
  const Tensor weights = program.input("loss_weights", {DType::kF32, {{kTokens, Count::tokens}}});
  const Tensor targets = program.input("targets", {DType::kI32, {{kTokens, Count::tokens}}});
  const Tensor logp =
      linear_logprobs(x, program.weight("vocabulary", {DType::kF32, {32, kWidth}}), targets, {.temperature = 1.0}).logp;
  program.output("loss", weighted_sum(logp, weights));
  return program;
}

TEST(Compiler, RecomputationLeavesRoomForWholeWeights) {
  auto shares = std::make_shared<WeightShares>(WeightShares{.rank = 0, .weights = true, .cuts = {}});
  const Program program = layered();
  for (const Value& value : program.values()) {
    if (value.role == Role::kWeight)
      shares->cuts[value.name] = {0, value.type.shape[0].size / 2, value.type.shape[0].size};
  }
  const auto arena_of = [&](const CompileOptions& options) {
    return plan_memory(Compiler(options).training(layered(), "loss"), DeviceKind::kCpu).arena;
  };
  const std::size_t whole = arena_of({});
  const std::size_t divided = arena_of({.shares = shares});
  ASSERT_GT(divided, whole);
  // Everything could be kept within this budget if no weight had to be gathered.
  const std::size_t budget = (whole + divided) / 2;
  EXPECT_LE(arena_of({.recompute = Recompute::kAutomatic, .activation_budget = budget, .shares = shares}), budget);
}

TEST(Compiler, AnUnknownLossIsADefect) { EXPECT_THROW((void)Compiler({}).training(traced(), "loss"), Defect); }

}  // namespace
}  // namespace hone::test
