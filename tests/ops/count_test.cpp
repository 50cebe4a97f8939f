// Tests of a program's counts: names, capacities, factors, and counts that only the device knows.
#include "program/count.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "core/error.h"
#include "ops/fill/fill.h"
#include "ops/gather_rows/gather_rows.h"
#include "ops/linear/linear.h"
#include "ops/registry.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/scale/scale.h"
#include "passes/fusion.h"
#include "program/executable.h"
#include "program/memory_plan.h"
#include "program/text.h"
#include "support/device.h"
#include "support/error_text.h"

namespace hone::test {
namespace {

constexpr std::int64_t kCountedRows = 8, kCountedWidth = 4;

const Count kKept("kept");

// Program with y = 2 norm(7) in table[index] rows; the device looks that count up.
Program counted_program() {
  register_operations();
  Program program;
  const Tensor norm = program.weight("norm", {DType::kF32, {kCountedWidth}});
  const Tensor table = program.input("table", {DType::kI64, {5, 1}});
  program.count(kKept, kCountedRows, gather_rows(table, program.input("index", {DType::kI32, {1}})));
  const Tensor x = fill(program, {DType::kF32, {{kCountedRows, kKept}, kCountedWidth}}, 7.0);
  program.output("y", scale(rms_norm(x, norm, {.epsilon = 0}), 2.0));
  return program;
}

TEST(Counts, AreEqualByName) {
  EXPECT_EQ(Count("tokens"), Count::tokens);
  EXPECT_EQ(Count("kept"), kKept);
  EXPECT_NE(Count("kept_2"), kKept);
  EXPECT_EQ(kKept.name(), "kept");
  EXPECT_EQ(Count::none.name(), "");
  for (const char* name : {"", "Kept", "1kept", "a b", "a:b", "an_overlong_name_of_thirty_three_c"}) {
    EXPECT_THROW(Count{name}, Error) << name;
  }
}

TEST(Counts, AreRefusedWhereTheCapacityIsAnother) {
  register_operations();
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {{8, Count::tokens}}});
  EXPECT_EQ(program.find_count(Count::tokens)->capacity, 8);
  EXPECT_EQ(error_text([&] { program.input("y", {DType::kF32, {{4, Count::tokens}}}); }),
            "f32[tokens:4]: the program's count tokens has the capacity 8");
  program.input("z", {DType::kF32, {{24, Count::tokens, 3}}});
  EXPECT_NE(
      error_text([&] { (void)fill(program, {DType::kF32, {{8, Count::samples}}}, 0.0); }).find("does not declare"),
      std::string::npos);
  EXPECT_NE(error_text([&] { program.count(kKept, 8, x); }).find("expected i64[1]"), std::string::npos);
  Program counted = counted_program();
  EXPECT_EQ(error_text([&] { counted.input("x", {DType::kF32, {{kCountedRows, kKept}}}); }),
            "x has the count kept, which a node computes");
}

TEST(Counts, AFactorMultipliesTheRowsInUse) {
  register_operations();
  Program program;
  const Tensor x = program.input("x", {DType::kF32, {{6, Count::tokens, 3}, 1}});
  program.output("y", scale(x, 2.0));
  Executable executable(std::move(program), std::make_shared<Arena>(cpu_device()), {});
  executable.set<float>("x", std::vector<float>(6, 1.0f));
  executable.set_count(Count::tokens, 1);
  executable.run();
  std::vector<float> y(6);
  executable.get<float>("y", y);
  EXPECT_EQ(y, (std::vector<float>{2, 2, 2, 0, 0, 0}));
  EXPECT_THROW(executable.set_count(Count::tokens, 3), Defect);
  EXPECT_THROW(executable.set_count(Count::samples, 1), Defect);
}

TEST(Counts, TextsRoundTrip) {
  for (const Type& type : {Type{DType::kF32, {{24, Count::tokens, 3}, 2}}, Type{DType::kBf16, {{8, kKept}}}}) {
    EXPECT_EQ(type_from_text(to_text(type)), type) << to_text(type);
  }
  EXPECT_EQ(to_text(Type{DType::kF32, {{24, Count::tokens, 3}, 2}}), "f32[3*tokens:24, 2]");
  for (const char* text : {"f32[3*tokens:25]", "f32[0*tokens:0]", "f32[2, tokens:8]", "f32[*tokens:8]", "f32[:8]"}) {
    EXPECT_THROW((void)type_from_text(text), Error) << text;
  }
  const std::string text = to_text(counted_program());
  EXPECT_NE(text.find("count kept: 8 = %3\n"), std::string::npos) << text;
  EXPECT_EQ(to_text(program_from_text(text)), text);
  EXPECT_EQ(to_text(fuse(counted_program(), FusionScope::kProgram)), text);
  // A count that no bound value declares has a line in the text.
  Program program;
  program.count(kKept, 3);
  program.output("y", fill(program, {DType::kF32, {{3, kKept}}}, 1.0));
  EXPECT_EQ(to_text(program_from_text(to_text(program))).substr(0, 14), "count kept: 3\n");
}

// Runs the program with each entry of the table in turn.
TEST(Counts, AreReadWhereTheDeviceComputedThem) {
  Device& device = test_device();
  const std::vector<NamedType> types{{"norm", {DType::kF32, {kCountedWidth}}}};
  TensorStore weights(device, types);
  const std::array<float, kCountedWidth> ones{1, 1, 1, 1};
  weights.upload("norm", std::as_bytes(std::span(ones)));
  Executable executable(counted_program(), std::make_shared<Arena>(device), {.weights = &weights});
  const std::vector<std::int64_t> table{3, 8, 0, 5, 1};
  executable.set<std::int64_t>("table", table);
  // Enough runs for the device to start replaying a recording.
  for (std::int32_t turn = 0; turn < 10; ++turn) {
    const std::int32_t index = turn % 5;
    executable.set<std::int32_t>("index", std::span(&index, 1));
    executable.run();
    std::vector<float> y(kCountedRows * kCountedWidth);
    executable.get<float>("y", y);
    std::vector<float> expected(kCountedRows * kCountedWidth, 0.0f);
    std::fill_n(expected.begin(), table[static_cast<std::size_t>(index)] * kCountedWidth, 2.0f);
    EXPECT_EQ(y, expected) << "turn " << turn;
  }
  EXPECT_THROW(executable.set_count(kKept, 1), Defect);
}

// The tensor that holds a count keeps its memory until the last value with that count has been computed, even if it is
// read as an operand only before.
TEST(Counts, TheirSourceKeepsItsMemory) {
  register_operations();
  Program program;
  const Tensor table = program.input("table", {DType::kI64, {5, 1}});
  const Tensor kept = gather_rows(table, program.input("index", {DType::kI32, {1}}));
  program.count(kKept, kCountedRows, kept);
  Tensor x = fill(program, {DType::kF32, {{kCountedRows, kKept}, kCountedWidth}}, 7.0);
  for (int i = 0; i < 4; ++i) x = scale(x, 2.0);
  program.output("y", x);
  const MemoryPlan plan = plan_memory(program, DeviceKind::kCpu);
  const auto place = [&](ValueId id) { return plan.value_offset[static_cast<std::size_t>(id)]; };
  for (const Node& node : program.nodes()) {
    const ValueId made = node.outputs[0];
    EXPECT_TRUE(made == kept.id() || place(made) != place(kept.id())) << "%" << made;
  }
}

}  // namespace
}  // namespace hone::test
