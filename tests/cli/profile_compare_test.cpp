// Tests the comparison of two profiles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/profile/compare.h"
#include "cli/program.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json_value.h"
#include "support/paths.h"

namespace hone::test {
namespace {

using testing::HasSubstr;

Json kernel(const char* op, const char* shapes, double runs, double ms, double flops, double bytes) {
  return {{"op", op}, {"module", "layers.*.mlp"}, {"phase", "forward"}, {"shapes", shapes}, {"runs", runs},
          {"ms", ms}, {"flops", flops},           {"bytes", bytes}};
}

// A profile whose device has 100 GFLOP/s and 10 GB/s.
Json summary(double step, std::vector<Json> kernels) {
  return {{"what", "test"},
          {"machine", "m"},
          {"step_ms", step},
          {"unprofiled_step_ms", step},
          {"tokens_per_step", 100.0},
          {"between_ms", 0.0},
          {"limits", {{"copy_gbps", 10.0}, {"product_tflops", 0.1}}},
          {"kernels", std::move(kernels)}};
}

const KernelChange& change_of(const std::vector<KernelChange>& changes, const std::string& name) {
  const auto found = std::ranges::find(changes, name, &KernelChange::name);
  EXPECT_NE(found, changes.end()) << name;
  return *found;
}

TEST(ProfileCompare, NamesTheReasonOfEachChange) {
  const Json a = summary(100, {kernel("calls", "f32[8]", 10, 10, 1e9, 1e6),
                               kernel("shapes", "f32[8]", 10, 10, 1e9, 1e6), kernel("rate", "f32[8]", 10, 10, 1e3, 1e8),
                               kernel("gone", "f32[8]", 2, 3, 1, 1), kernel("same", "f32[8]", 10, 10, 1e9, 1e6)});
  const Json b =
      summary(150, {kernel("calls", "f32[8]", 30, 30, 3e9, 3e6), kernel("shapes", "f32[32]", 10, 41, 4e9, 4e6),
                    kernel("rate", "f32[8]", 10, 25, 1e3, 1e8), kernel("new", "f32[8]", 4, 7, 1, 1),
                    kernel("same", "f32[8]", 10, 10, 1e9, 1e6)});
  const std::vector<KernelChange> changes = profile_changes(a, b);
  ASSERT_EQ(changes.size(), 6u);
  EXPECT_EQ(changes[0].name, "shapes") << "largest first";
  for (const KernelChange& each : changes) {
    if (each.before > 0 && each.after > 0) {
      EXPECT_NEAR(each.calls + each.work + each.rate, each.change(), 1e-9);
    }
  }
  EXPECT_EQ(change_of(changes, "calls").reason, "more calls: 30, up from 10");
  EXPECT_NEAR(change_of(changes, "calls").calls, 20, 1e-9);
  EXPECT_EQ(change_of(changes, "shapes").reason, "other shapes: f32[32], before f32[8]");
  EXPECT_GT(change_of(changes, "shapes").work, 25);
  EXPECT_EQ(change_of(changes, "rate").reason, "lower rate: 4 GB/s, down from 10 GB/s") << "bytes limit it";
  EXPECT_EQ(change_of(changes, "new").reason, "only in B: 4 calls");
  EXPECT_EQ(change_of(changes, "gone").reason, "only in A: 2 calls");
  EXPECT_EQ(change_of(changes, "same").reason, "");
  const std::string text = comparison_text(a, b, 4);
  EXPECT_THAT(text, HasSubstr("A: test on m, 100 ms a step, 1,000 tokens/s\n"));
  EXPECT_THAT(text, HasSubstr("other shapes: f32[32], before f32[8]\n"));
  EXPECT_THAT(text, HasSubstr("2 smaller changes are not shown\n"));
}

// A row of "counters" for the operation of kernel().
Json counted(const char* op, Json figures) {
  Json row = {{"op", op}, {"module", "layers.*.mlp"}, {"phase", "forward"}, {"runs", 10}};
  row.update(figures);
  return row;
}

TEST(ProfileCompare, CountersSayWhyARateChanged) {
  Json a = summary(30, {kernel("linear", "f32[8]", 10, 10, 1e9, 1), kernel("copy", "f32[8]", 10, 10, 1, 1e8),
                        kernel("calls", "f32[8]", 10, 10, 1e9, 1)});
  Json b = summary(70, {kernel("linear", "f32[8]", 10, 20, 1e9, 1), kernel("copy", "f32[8]", 10, 30, 1, 1e8),
                        kernel("calls", "f32[8]", 20, 20, 2e9, 1)});
  const Json linear = {{"instructions", 5e7}, {"instructions_per_cycle", 2.4}, {"ghz", 3.0}, {"cores", 2.0}};
  a["counters"]["kernels"] = {
      counted("linear", linear), counted("calls", linear),
      counted("copy", {{"dram_read_bytes", 1e8}, {"dram_written_bytes", 1e8}, {"occupancy", 0.8}})};
  b["counters"]["kernels"] = {
      counted("linear", {{"instructions", 5e7}, {"instructions_per_cycle", 1.5}, {"ghz", 2.4}, {"cores", 2.0}}),
      counted("calls", {{"instructions", 5e7}, {"instructions_per_cycle", 1.0}}),
      counted("copy", {{"dram_read_bytes", 4e8}, {"dram_written_bytes", 1e8}, {"occupancy", 0.5}})};
  const std::vector<KernelChange> changes = profile_changes(a, b);
  EXPECT_EQ(change_of(changes, "linear").reason,
            "lower rate: 50 GFLOP/s, down from 100 GFLOP/s; fewer instructions per cycle: 1.5, down from 2.4");
  EXPECT_EQ(change_of(changes, "copy").reason,
            "lower rate: 3.333 GB/s, down from 10 GB/s; more MB of DRAM a call: 50, up from 20");
  EXPECT_EQ(change_of(changes, "calls").reason, "more calls: 20, up from 10") << "its rate did not change";
  const std::vector<KernelChange> back = profile_changes(b, a);
  EXPECT_THAT(change_of(back, "linear").reason, HasSubstr("; more instructions per cycle: 2.4, up from 1.5"));
  // Twice the instructions for twice the work of a call explain nothing; fewer instructions per cycle do.
  Json larger = summary(70, {kernel("linear", "f32[8]", 10, 60, 2e9, 1)});
  larger["counters"]["kernels"] = {
      counted("linear", {{"instructions", 1e8}, {"instructions_per_cycle", 1.7}, {"ghz", 3.0}, {"cores", 1.6}})};
  EXPECT_THAT(change_of(profile_changes(a, larger), "linear").reason,
              HasSubstr("; fewer instructions per cycle: 1.7, down from 2.4"));
  b["counters"] = {{"refusal", "not counted"}};
  EXPECT_EQ(change_of(profile_changes(a, b), "linear").reason, "lower rate: 50 GFLOP/s, down from 100 GFLOP/s");
}

TEST(ProfileCompare, AddsTheShapesOfAnOperation) {
  const Json a = summary(10, {kernel("linear", "f32[8]", 1, 4, 1e9, 1), kernel("linear", "f32[9]", 1, 6, 1e9, 1)});
  const Json b = summary(10, {kernel("linear", "f32[8]", 2, 5, 2e9, 1)});
  const std::vector<KernelChange> changes = profile_changes(a, b);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_DOUBLE_EQ(changes[0].before, 10);
  EXPECT_THAT(changes[0].reason, HasSubstr("higher rate: 400 GFLOP/s, up from 200 GFLOP/s"));
}

TEST(ProfileCompare, ShowsTimeBetweenOperationsThatBegins) {
  const Json a = summary(10, {kernel("linear", "f32[8]", 1, 4, 1e9, 1)});
  Json b = a;
  b["between_ms"] = 2.0;
  const std::vector<KernelChange> changes = profile_changes(a, b);
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].name, "time between operations");
  EXPECT_EQ(changes[0].reason, "") << "no call is new";
  const std::string text = comparison_text(a, b);
  EXPECT_THAT(text, testing::Not(HasSubstr("linear"))) << "it did not change";
  EXPECT_THAT(text, HasSubstr("1 smaller changes are not shown"));
}

TEST(ProfileCompare, StaysFiniteWithoutRuns) {
  const Json a = summary(10, {kernel("linear", "f32[8]", 0, 4, 1e9, 1)});
  const Json b = summary(10, {kernel("linear", "f32[8]", 2, 5, 2e9, 1)});
  const KernelChange change = profile_changes(a, b).at(0);
  EXPECT_EQ(change.calls, 0);
  EXPECT_EQ(change.work, 0);
  EXPECT_DOUBLE_EQ(change.rate, 1);
  EXPECT_EQ(change.reason, "slower");
}

TEST(ProfileCompare, ShowsRewardsApart) {
  const auto grpo = [](double ms, double completions) {
    return Json{{"what", "grpo"},
                {"machine", "m"},
                {"step_ms", 100.0},
                {"phases", {{{"name", "generation"}, {"ms", 100.0}}}},
                {"rewards", {{{"name", "slow"}, {"ms", ms}, {"completions", completions}}}}};
  };
  const std::string text = comparison_text(grpo(10, 4), grpo(40, 16));
  EXPECT_THAT(text, testing::ContainsRegex("\nslow +10.000 +40.000 +\\+30.000  more calls: 16, up from 4\n"));
  EXPECT_THAT(text, testing::ContainsRegex("\nall +100.000 +100.000 +\\+0.000\n")) << "no part of the step";
}

TEST(ProfileCompare, ReadsFoldersAndFiles) {
  const TemporaryDirectory directory;
  const std::string a = directory.path() / "a";
  const std::string b = directory.path() / "b.json";
  hone::create_directories(a);
  write_json(directory.path() / "a/kernel_summary.json", summary(10, {kernel("linear", "f32[8]", 1, 4, 1e9, 1)}));
  write_json(b, summary(10, {kernel("linear", "f32[8]", 1, 5, 1e9, 1)}));
  const Ended ended = run_program({"profile", "--compare", a, b});
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("lower rate"));
  EXPECT_THAT(run_program({"profile", "--compare", a}).output, HasSubstr("--compare: expected two profiles, saw 1"));
  EXPECT_THAT(run_program({"profile", "--compare", a + "1", b + "2"}).output, HasSubstr(a + "1")) << "A comes first";
  write_file(b, "{}");
  EXPECT_THAT(run_program({"profile", "--compare", a, b}).output, HasSubstr("is no summary of a profile"));
}

}  // namespace
}  // namespace hone::test
