#include "compile/compiler.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "ops/embedding/embedding.h"
#include "ops/linear/linear.h"
#include "ops/registry.h"
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

TEST(Compiler, AnUnknownLossIsADefect) { EXPECT_THROW((void)Compiler({}).training(traced(), "loss"), Defect); }

}  // namespace
}  // namespace hone::test
