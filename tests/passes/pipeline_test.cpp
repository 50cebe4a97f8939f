// Tests of the passes that cut a program into the stages of a pipeline, compared as text with tests/fixtures/passes.
#include "passes/pipeline.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ops/add/add.h"
#include "ops/linear/linear.h"
#include "ops/registry.h"
#include "ops/scale/scale.h"
#include "passes/gradient.h"
#include "passes/small_program.h"
#include "passes/stage_states.h"
#include "program/text.h"
#include "support/golden.h"

namespace hone::test {
namespace {

StageCut cut_of(int stage, std::vector<std::int64_t> first_layers) {
  return {.stage = stage, .first_layers = std::move(first_layers), .loss = "y"};
}

// The stage with the backward pass that the compiler appends.
Program with_stage_gradients(Program program) {
  std::vector<GradientSeed> seeds;
  for (const Output& output : std::vector<Output>(program.outputs())) {
    const Tensor value = program.tensor(output.value);
    seeds.push_back({value, program.input(is_sent(output.name) ? gradient_name(output.name) : "dy", value.type())});
  }
  std::vector<Tensor> received;
  if (const ValueId id = program.find(Role::kInput, "received.0"); id != kNoValue)
    received.push_back(program.tensor(id));
  for (const Tensor& gradient : append_gradients(program, seeds, received)) {
    program.output(gradient_name("received.0"), gradient);
  }
  return program;
}

std::vector<std::string> names_of(const Program& program, Role role) {
  std::vector<std::string> names;
  for (const Value& value : program.values()) {
    if (value.producer < 0 && value.role == role) names.push_back(value.name);
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> output_names(const Program& program) {
  std::vector<std::string> names;
  for (const Output& output : program.outputs()) names.push_back(output.name);
  return names;
}

using Names = std::vector<std::string>;

TEST(CutStage, Golden) {
  const Program first = cut_stage(small_program(), cut_of(0, {0, 1}));
  const Program last = cut_stage(small_program(), cut_of(1, {0, 1}));
  const SplitStage split = split_passes(with_stage_gradients(first));
  expect_golden("passes/cut_stage.txt",
                "first stage\n" + to_text(first) + "\nlast stage\n" + to_text(last) + "\nforward pass of the first\n" +
                    to_text(split.forward) + "\nbackward pass of the first\n" + to_text(split.backward) +
                    "\nboth passes of the last\n" +
                    to_text(exchange_by_states(with_stage_gradients(last), StageSends::kGradients)));
}

TEST(CutStage, OneStageIsTheProgram) {
  const Program same = cut_stage(small_program(), cut_of(0, {0}));
  const Program program = small_program();
  ASSERT_EQ(same.nodes().size(), program.nodes().size());
  for (std::size_t n = 0; n < same.nodes().size(); ++n) EXPECT_EQ(same.nodes()[n].op, program.nodes()[n].op);
  EXPECT_EQ(output_names(same), output_names(program));
  EXPECT_EQ(names_of(same, Role::kInput), names_of(program, Role::kInput));
}

TEST(CutStage, EachNodeIsInOneStage) {
  std::size_t nodes = 0;
  for (const int stage : {0, 1}) nodes += cut_stage(small_program(), cut_of(stage, {0, 1})).nodes().size();
  EXPECT_EQ(nodes, small_program().nodes().size());
}

// A program of three layers. All layers read a table that is computed from an input, the last one and the output read
// what the first has computed, and a statistic of the first layer is an output without a gradient.
Program crossing_program() {
  register_operations();
  Program program;
  const Tensor start = program.input("start", {DType::kF32, {4, 4}});
  const Tensor table = scale(program.input("positions", {DType::kF32, {4, 4}}), 0.5);
  const Tensor matrix = program.weight("shared", {DType::kF32, {4, 4}});
  Tensor x = linear(start, matrix);
  Tensor first;
  for (int layer = 0; layer < 3; ++layer) {
    const Scope scope(program, text_of("layers.", layer));
    x = linear(x, program.weight(program.scope(), {DType::kF32, {4, 4}})) + table;
    if (layer == 0) first = x;
    if (layer == 0) program.output("statistic", scale(x, 3.0));
    if (layer == 2) x = x + first;
  }
  program.output("y", linear(x, matrix));
  return program;
}

TEST(CutStage, ValuesPassThroughStages) {
  const auto stage = [](int number) { return cut_stage(crossing_program(), cut_of(number, {0, 1, 2})); };
  // The first layer's value is read by the second and the third layer. The statistic has no gradient.
  EXPECT_EQ(output_names(stage(0)), (Names{"sent.0", "sent.constant.1"}));
  EXPECT_EQ(names_of(stage(1), Role::kInput), (Names{"positions", "received.0", "received.constant.1"}));
  EXPECT_EQ(output_names(stage(1)), (Names{"sent.0", "sent.constant.1", "sent.2"}));
  EXPECT_EQ(names_of(stage(2), Role::kInput), (Names{"positions", "received.0", "received.2", "received.constant.1"}));
  EXPECT_EQ(output_names(stage(2)), (Names{"statistic", "y"}));
  EXPECT_EQ(names_of(stage(0), Role::kWeight), (Names{"layers.0", "shared"}));
  EXPECT_EQ(names_of(stage(1), Role::kWeight), (Names{"layers.1"}));
  EXPECT_EQ(names_of(stage(2), Role::kWeight), (Names{"layers.2", "shared"}));
  const auto readers = stages_of_weights(crossing_program(), cut_of(0, {0, 1, 2}));
  EXPECT_EQ(readers.at("shared"), (std::vector<int>{0, 2}));
  EXPECT_EQ(readers.at("layers.1"), (std::vector<int>{1}));
  EXPECT_TRUE(has_gradient("received.0") && !has_gradient("received.constant.1") && !has_gradient("y"));
}

// `layers` layers of one matrix each, of which those in `wide` cost more, and a head of `head` columns.
Program weighted_program(int layers, const std::vector<int>& wide, std::int64_t head) {
  register_operations();
  Program program;
  Tensor x = program.input("x", {DType::kF32, {512, 512}});
  for (int layer = 0; layer < layers; ++layer) {
    const Scope scope(program, text_of("layers.", layer));
    const std::int64_t copies = 1 + std::ranges::count(wide, layer) * 3;
    for (std::int64_t i = 0; i < copies; ++i) {
      x = linear(x, program.weight(text_of(program.scope(), ".", i), {DType::kF32, {512, 512}}));
    }
  }
  program.output("y", linear(x, program.weight("head", {DType::kF32, {head, 512}})));
  return program;
}

TEST(BalancedLayers, TheSlowestStageIsAsFastAsPossible) {
  using Firsts = std::vector<std::int64_t>;
  EXPECT_EQ(balanced_layers(weighted_program(8, {}, 8), 1), (Firsts{0}));
  EXPECT_EQ(balanced_layers(weighted_program(8, {}, 8), 8), (Firsts{0, 1, 2, 3, 4, 5, 6, 7}));
  // The head costs about as much as four layers.
  EXPECT_EQ(balanced_layers(weighted_program(8, {}, 2048), 2), (Firsts{0, 6}));
  // A layer that costs as much as four.
  EXPECT_EQ(balanced_layers(weighted_program(4, {0}, 8), 2), (Firsts{0, 1}));
  EXPECT_EQ(balanced_layers(weighted_program(4, {3}, 8), 2), (Firsts{0, 3}));
  EXPECT_EQ(count_layers(weighted_program(4, {0}, 8)), 4);
}

}  // namespace
}  // namespace hone::test
