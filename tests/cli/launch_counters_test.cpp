// Tests how events of a GPU's kernels are summed and shown. Needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/profile/launch_counters.h"
#include "core/json_value.h"

namespace hone::test {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(LaunchCounters, FunctionNamesAreShort) {
  EXPECT_EQ(function_name("_ZN4hone12_GLOBAL__N_14copyILi4EEEvPf"), "hone::copy<4>");
  EXPECT_EQ(function_name("void hone::(anonymous namespace)::copy<(int)4>(float*, void (*)(int))"),
            "hone::copy<(int)4>");
  EXPECT_EQ(function_name("nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_NTT"),
            "nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_NTT");
  EXPECT_EQ(function_name(""), "");
}

// Two operations: a GEMM of two launches, and a copy. A third launch belongs to no operation.
CounterReport made_up_launches() {
  Timeline timeline;
  timeline.nodes.push_back({.op = "linear", .category = "GEMM", .scope = "layers.0.mlp", .shapes = ""});
  timeline.nodes.push_back({.op = "linear", .category = "GEMM", .scope = "layers.1.mlp", .shapes = ""});
  timeline.nodes.push_back({.op = "cast", .category = "memory", .scope = "", .shapes = ""});
  const std::vector<std::string_view> names{"gpu_ns",           "dram_read_bytes", "dram_peak_ns",
                                            "tensor_active_ns", "l2_sectors",      "l2_hits"};
  const std::vector<NodeLaunches> nodes{{0, 0, 2}, {1, 2, 3}, {2, 4, 5}};
  const std::vector<KernelEvents> events{{"gemm", {1000, 5e6, 100, 900, 100, 90}},
                                         {"reduce", {500, 1e6, 400, 0, 50, 0}},
                                         {"gemm", {1500, 5e6, 100, 900, 100, 60}},
                                         {"other", {9000, 1, 1, 1, 1, 1}},
                                         {"copy", {200, 2e6, 180, 0, 0, 0}}};
  return launch_report(names, timeline, nodes, events);
}

TEST(LaunchCounters, SumsByOperationAndByKernel) {
  const CounterReport report = made_up_launches();
  ASSERT_EQ(report.kernels.size(), 2u) << "a launch of no operation is left out";
  EXPECT_EQ(report.kernels[0].op, "linear");
  EXPECT_EQ(report.kernels[0].module, "layers.*.mlp");
  EXPECT_EQ(report.kernels[0].runs, 2);
  EXPECT_DOUBLE_EQ(report.kernels[0].seconds, 3e-6);
  EXPECT_DOUBLE_EQ(report.kernels[0].counts[1], 11e6);
  EXPECT_EQ(report.kernels[1].op, "cast");
  ASSERT_EQ(report.launched.size(), 4u);
  EXPECT_EQ(report.launched[0].op, "other") << "slowest first";
  EXPECT_EQ(report.launched[1].op, "gemm");
  EXPECT_EQ(report.launched[1].runs, 2);
  EXPECT_DOUBLE_EQ(report.launched[1].counts[0], 2500);
}

TEST(LaunchCounters, SharesAreOfTheTimeOfAllLaunches) {
  const Json json = to_json(made_up_launches());
  const Json& linear = json["kernels"][0];
  EXPECT_DOUBLE_EQ(linear["dram_share"].get<double>(), 600.0 / 3000);
  EXPECT_DOUBLE_EQ(linear["tensor_share"].get<double>(), 1800.0 / 3000);
  EXPECT_DOUBLE_EQ(linear["l2_hit_rate"].get<double>(), 150.0 / 250);
  EXPECT_EQ(linear["dram_read_bytes"], 11e6);
  EXPECT_FALSE(linear.contains("occupancy")) << "it was not counted";
  EXPECT_FALSE(json["kernels"][1].contains("l2_hit_rate")) << "no sector was looked up";
  EXPECT_EQ(json["of"], "micro-batch and update");
  EXPECT_EQ(json["launched"][1]["kernel"], "gemm");
  const std::string text = to_text(made_up_launches());
  EXPECT_THAT(text, HasSubstr("events per micro-batch and update"));
  EXPECT_THAT(text, HasSubstr("% DRAM peak"));
  EXPECT_THAT(text, Not(HasSubstr("% occupancy")));
  EXPECT_THAT(text, HasSubstr("kernel "));
}

}  // namespace
}  // namespace hone::test
