// Tests of Executable: inputs, counts, bindings, recording, observers and errors.
#include "program/executable.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "core/error.h"
#include "ops/add/add.h"
#include "ops/fill/fill.h"
#include "ops/linear/linear.h"
#include "ops/registry.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/scale/scale.h"
#include "program/test_ops.h"
#include "support/device.h"

namespace hone::test {
namespace {

constexpr std::int64_t kRows = 6, kWidth = 4;

// y = norm(x) W^T, z = 2 y
Program small_program() {
  register_operations();
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {{kRows, Count::tokens}, kWidth}});
  const Tensor h = rms_norm(x, program.weight("norm", {DType::kF32, {kWidth}}), {.epsilon = 0});
  const Tensor y = linear(h, program.weight("matrix", {DType::kF32, {3, kWidth}}));
  program.output("y", y);
  program.output("z", scale(y, 2.0));
  return program;
}

const std::vector<NamedType> kWeights{{"norm", {DType::kF32, {kWidth}}}, {"matrix", {DType::kF32, {3, kWidth}}}};

TensorStore make_weights(float matrix) {
  register_operations();
  TensorStore store(cpu_device(), kWeights);
  const std::vector<float> ones(kWidth, 1.0f);
  const std::vector<float> entries(3 * kWidth, matrix);
  store.upload("norm", std::as_bytes(std::span(ones)));
  store.upload("matrix", std::as_bytes(std::span(entries)));
  return store;
}

std::vector<float> output_of(const Executable& executable, std::string_view name, std::size_t count) {
  std::vector<float> values(count);
  executable.get<float>(name, values);
  return values;
}

TEST(Executable, RunsAndCounts) {
  const TensorStore weights = make_weights(0.5f);
  Executable executable(small_program(), std::make_shared<Arena>(cpu_device()), {.weights = &weights});
  const std::vector<float> x(kRows * kWidth, 3.0f);
  executable.set<float>("x", x);
  executable.run();  // no count is set, so all rows are in use
  EXPECT_EQ(output_of(executable, "y", kRows * 3), std::vector<float>(kRows * 3, 2.0f));
  EXPECT_EQ(output_of(executable, "z", kRows * 3), std::vector<float>(kRows * 3, 4.0f));

  for (const std::int64_t count : {kRows - 2, std::int64_t{0}, kRows}) {
    executable.set_count(Count::tokens, count);
    executable.run();
    std::vector<float> expected(kRows * 3, 0.0f);
    std::fill_n(expected.begin(), count * 3, 2.0f);
    EXPECT_EQ(output_of(executable, "y", kRows * 3), expected) << count;
  }
  // A shorter input leaves the rest unchanged.
  executable.set<float>("x", std::vector<float>(kWidth, -3.0f));
  executable.run();
  EXPECT_EQ(output_of(executable, "y", 4), (std::vector<float>{-2.0f, -2.0f, -2.0f, 2.0f}));
}

// a = 2 x, b = a + y: y may be set after the run has begun.
TEST(Executable, BeginsBeforeALateInputIsSet) {
  register_operations();
  const Type type{DType::kF32, {{kRows, Count::tokens}, kWidth}};
  Program program;
  const Tensor twice = scale(program.input("x", type), 2.0);
  const Tensor late = program.input("y", type);
  program.output("a", twice);
  program.output("b", add(twice, late));
  Executable executable(std::move(program), std::make_shared<Arena>(test_device()), {});
  const auto all = [](float value) { return std::vector<float>(kRows * kWidth, value); };
  for (int run = 1; run <= 6; ++run) {
    const auto value = static_cast<float>(run);
    executable.set<float>("x", all(value));
    executable.begin("y");
    EXPECT_EQ(output_of(executable, "a", kRows * kWidth), all(2 * value));
    // Nodes that have been launched do not see what is set now.
    executable.set<float>("x", all(-1));
    executable.set<float>("y", all(100 * value));
    executable.run();
    EXPECT_EQ(output_of(executable, "a", kRows * kWidth), all(2 * value));
    EXPECT_EQ(output_of(executable, "b", kRows * kWidth), all(102 * value));
    if (run % 2 == 0) continue;
    executable.set<float>("x", all(value));
    executable.run();  // as a whole
    EXPECT_EQ(output_of(executable, "b", kRows * kWidth), all(102 * value));
  }
  executable.begin("y");
  EXPECT_THROW(executable.begin("y"), Defect);
}

// y = factor x in f32, for some rows.
Program scaling(std::int64_t rows, double factor) {
  Program program;
  const Type type{DType::kF32, {{rows, Count::tokens}, kWidth}};
  program.output("y", scale(program.input("x", type), factor));
  return program;
}

// A large program, a small one and one with a further input take turns with one buffer.
TEST(Executable, SharesInputsWithOthers) {
  register_operations();
  const auto arena = std::make_shared<Arena>(test_device());
  std::vector<Program> programs{scaling(kRows, 2.0), scaling(2, 3.0)};
  Program& sum = programs.emplace_back();
  const Type type{DType::kF32, {{4, Count::tokens}, kWidth}};
  sum.output("y", add(sum.input("x", type), sum.input("late", type)));
  InputLayout layout;
  for (const Program& program : programs) layout.add(program);
  EXPECT_EQ(layout.bytes(), align_up(sizeof(std::int64_t)) + align_up(kRows * kWidth * 4) + align_up(4 * kWidth * 4));
  const std::size_t before = test_device().allocated_bytes();
  const auto inputs = std::make_shared<InputBuffer>(test_device(), layout);
  std::vector<Executable> executables;
  for (const Program& program : programs)
    executables.emplace_back(program, plan_memory(program, test_device().kind()), arena, Bindings{}, inputs);
  EXPECT_EQ(test_device().allocated_bytes() - before, layout.bytes());
  const auto values = [](std::int64_t rows, float value) {
    return std::vector<float>(static_cast<std::size_t>(rows * kWidth), value);
  };
  Executable& large = executables[0];
  Executable& small = executables[1];
  Executable& late = executables[2];
  for (int run = 1; run <= 4; ++run) {  // recorded and replayed
    const auto value = static_cast<float>(run);
    large.set<float>("x", values(kRows, value));
    large.run();
    EXPECT_EQ(output_of(large, "y", kRows * kWidth), values(kRows, 2 * value));
    small.set<float>("x", values(1, -value));
    small.set_count(Count::tokens, 1);
    small.run();
    EXPECT_EQ(output_of(small, "y", kWidth), values(1, -3 * value));
    // The rows that the small program did not set are those of the large one, and so is its count.
    large.run();
    std::vector<float> expected = values(1, -2 * value);
    expected.resize(kRows * kWidth, 2 * value);
    EXPECT_EQ(output_of(large, "y", kRows * kWidth), expected);
    late.set<float>("x", values(4, value));
    late.begin("late");
    EXPECT_THROW(small.set<float>("x", values(1, 0)), Defect);
    EXPECT_THROW(small.run(), Defect);
    EXPECT_THROW(large.begin("x"), Defect);
    late.set<float>("late", values(4, 10));
    late.run();
    EXPECT_EQ(output_of(late, "y", 4 * kWidth), values(4, 10 + value));
  }
}

// A process sets by changes() what another one has set for programs that share inputs.
TEST(Executable, SharedInputsFollowByTheirChanges) {
  register_operations();
  const auto make = [] {
    InputLayout layout(scaling(kRows, 2.0));
    layout.add(scaling(2, 3.0));
    const auto arena = std::make_shared<Arena>(test_device());
    const auto inputs = std::make_shared<InputBuffer>(test_device(), layout);
    std::vector<Executable> executables;
    for (const Program& program : {scaling(kRows, 2.0), scaling(2, 3.0)})
      executables.emplace_back(program, plan_memory(program, test_device().kind()), arena, Bindings{}, inputs);
    return executables;
  };
  std::vector<Executable> leading = make();
  std::vector<Executable> following = make();
  for (int run = 0; run < 12; ++run) {
    const std::size_t which = run % 3 == 1 ? 1 : 0;
    const std::int64_t rows = which == 1 ? 1 + run % 2 : 1 + run % kRows;
    const auto elements = static_cast<std::size_t>(rows * kWidth);
    leading[which].set<float>("x", std::vector<float>(elements, static_cast<float>(run / 2)));
    leading[which].set_count(Count::tokens, rows);
    following[which].set_changes(leading[which].changes());
    leading[which].run();
    following[which].run();
    EXPECT_EQ(output_of(following[which], "y", elements), output_of(leading[which], "y", elements));
  }
}

TEST(Executable, RefusesWhatDoesNotFit) {
  const TensorStore weights = make_weights(1.0f);
  Executable executable(small_program(), std::make_shared<Arena>(cpu_device()), {.weights = &weights});
  const std::vector<float> longer(kRows * kWidth + 1);
  EXPECT_THROW(executable.set<float>("x", longer), Defect);
  EXPECT_THROW(executable.set<double>("x", std::vector<double>(2)), Defect);
  EXPECT_THROW(executable.set<float>("norm", std::vector<float>(2)), Defect);
  EXPECT_THROW(executable.set_count(Count::tokens, kRows + 1), Defect);
  EXPECT_THROW(executable.set_count(Count::tokens, -1), Defect);
  executable.run();
  std::vector<float> values(kRows * 3 + 1);
  EXPECT_THROW(executable.get<float>("y", values), Defect);
  EXPECT_THROW(executable.get<float>("x", std::span(values).first(1)), Defect);
  std::vector<double> wide(1);
  EXPECT_THROW(executable.get<double>("y", wide), Defect);
}

TEST(Executable, NamesWhatIsNotBound) {
  const auto failure = [](const Bindings& bindings) -> std::string {
    Executable executable(small_program(), std::make_shared<Arena>(cpu_device()), bindings);
    try {
      executable.run();
    } catch (const Defect& defect) {
      return defect.what();
    }
    return "ran";
  };
  EXPECT_NE(failure({}).find("nothing is bound to norm"), std::string::npos) << failure({});
  std::vector<NamedType> types = kWeights;
  types[1].type.shape = {3, kWidth + 1};
  const TensorStore other(cpu_device(), types);
  EXPECT_NE(failure({.weights = &other}).find("matrix is f32[3, 4], bound to f32[3, 5]"), std::string::npos)
      << failure({.weights = &other});
}

TEST(Executable, ReadsTheWeightsItIsBoundTo) {
  TensorStore policy = make_weights(0.5f);
  const TensorStore reference = make_weights(-0.25f);
  Executable executable(small_program(), std::make_shared<Arena>(cpu_device()), {.weights = &policy});
  executable.set<float>("x", std::vector<float>(kRows * kWidth, 1.0f));
  const auto first = [&] {
    executable.run();
    return output_of(executable, "y", 1)[0];
  };
  EXPECT_EQ(first(), 2.0f);
  executable.rebind_weights(reference);
  EXPECT_EQ(first(), -1.0f);
  executable.rebind_weights(policy);
  EXPECT_EQ(first(), 2.0f);
  const std::vector<float> larger(3 * kWidth, 1.5f);
  policy.upload("matrix", std::as_bytes(std::span(larger)));
  EXPECT_EQ(first(), 6.0f);
}

// The constructor allocates the inputs and the first run the arena, exactly as planned.
TEST(Executable, AllocatesWhatThePlanSays) {
  const TensorStore weights = make_weights(1.0f);
  const std::size_t before = cpu_device().allocated_bytes();
  {
    auto arena = std::make_shared<Arena>(cpu_device());
    Executable small(small_program(), arena, {.weights = &weights});
    Program program;
    const Tensor in = program.input("in", {DType::kU8, {100}});
    program.output("out", mix(program, {&in, 1}, 5000, 3000));
    Executable large(std::move(program), arena, {});
    EXPECT_EQ(small.plan().inputs, align_up(kRows * kWidth * 4) + align_up(sizeof(std::int64_t)));
    EXPECT_EQ(large.plan().arena, align_up(5000) + align_up(3000));
    const std::size_t inputs = small.plan().inputs + large.plan().inputs;
    EXPECT_EQ(cpu_device().allocated_bytes(), before + inputs);
    EXPECT_EQ(arena->bytes(), std::max(small.plan().arena, large.plan().arena));
    for (int i = 0; i < 3; ++i) {
      small.run();
      large.run();
      EXPECT_EQ(cpu_device().allocated_bytes(), before + inputs + arena->bytes());
    }
    // The size of the arena is fixed after its first use.
    arena->reserve(arena->bytes());
    EXPECT_THROW(arena->reserve(arena->bytes() + 1), Defect);
  }
  EXPECT_EQ(cpu_device().allocated_bytes(), before);
}

TEST(Executable, MovesWithItsState) {
  const TensorStore weights = make_weights(0.5f);
  Executable first(small_program(), std::make_shared<Arena>(cpu_device()), {.weights = &weights});
  first.set<float>("x", std::vector<float>(kRows * kWidth, 1.0f));
  first.run();
  Executable second = std::move(first);
  EXPECT_EQ(output_of(second, "y", 1)[0], 2.0f);
  second.run();
  EXPECT_EQ(output_of(second, "z", 1)[0], 4.0f);
}

TEST(Executable, TimesEveryNode) {
  const TensorStore weights = make_weights(1.0f);
  Executable executable(small_program(), std::make_shared<Arena>(cpu_device()), {.weights = &weights});
  NodeTimes times;
  executable.set_observer(&times);
  executable.run();
  const std::vector<double> once(times.seconds().begin(), times.seconds().end());
  ASSERT_EQ(once.size(), executable.program().nodes().size());
  EXPECT_GT(std::accumulate(once.begin(), once.end(), 0.0), 0.0);
  executable.run();
  ASSERT_EQ(times.seconds().size(), once.size());
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_GE(times.seconds()[i], once[i]);
  const std::vector<double> twice(times.seconds().begin(), times.seconds().end());
  executable.set_observer(nullptr);
  executable.run();
  EXPECT_TRUE(std::ranges::equal(times.seconds(), twice));
}

// Records the callbacks as text and marks the stopwatch before and after each node.
class Story final : public NodeObserver {
 public:
  void begin_run(Stopwatch&) override { text += "begin"; }
  void before_node(std::size_t node, Stopwatch& stopwatch) override {
    text += " <" + std::to_string(node);
    stopwatch.mark();
  }
  void after_node(std::size_t node, Stopwatch& stopwatch) override {
    text += " " + std::to_string(node) + ">";
    stopwatch.mark();
  }
  void end_run(Stopwatch& stopwatch) override { text += " end " + std::to_string(stopwatch.read().size()) + "\n"; }

  std::string text;
};

TEST(Executable, TellsItsObserverOfEveryNodeInOrder) {
  const TensorStore weights = make_weights(1.0f);
  Executable executable(small_program(), std::make_shared<Arena>(cpu_device()), {.weights = &weights});
  executable.set<float>("x", std::vector<float>(kRows * kWidth, 1.0f));
  Story story;
  executable.run();
  const float unobserved = output_of(executable, "y", 1)[0];
  executable.set_observer(&story);
  executable.run();
  executable.run();
  EXPECT_EQ(output_of(executable, "y", 1)[0], unobserved);
  std::string run = "begin";
  const std::size_t nodes = executable.program().nodes().size();
  for (std::size_t i = 0; i < nodes; ++i) run += " <" + std::to_string(i) + " " + std::to_string(i) + ">";
  run += " end " + std::to_string(2 * nodes - 1) + "\n";
  EXPECT_EQ(story.text, run + run);
}

}  // namespace
}  // namespace hone::test
