// Tests of the device model: the built-in table, and measured rates that take precedence over it.
#include "backend/device_model.h"

#include <gtest/gtest.h>

namespace hone::test {
namespace {

double promised(std::string_view name) { return built_in_model(name).peak_flops.per_second; }

TEST(DeviceModel, DataSheetsAreFoundByName) {
  EXPECT_EQ(promised("NVIDIA H100 80GB HBM3"), 989.4e12);
  EXPECT_EQ(promised("NVIDIA H100 PCIe"), 756e12);
  EXPECT_EQ(promised("NVIDIA H200"), 989.4e12);
  EXPECT_EQ(promised("NVIDIA H20"), 148e12);
  EXPECT_EQ(promised("NVIDIA GH200 480GB"), 989.4e12);
  EXPECT_EQ(promised("NVIDIA A100-SXM4-80GB"), 312e12);
  EXPECT_EQ(promised("NVIDIA L40S"), 362.1e12);
  EXPECT_EQ(promised("NVIDIA L4"), 121e12);
  EXPECT_EQ(built_in_model("NVIDIA L4").peak_flops.source, RateSource::kBuiltIn);
}

TEST(DeviceModel, KnowsNothingOfAnUnknownName) {
  const DeviceModel model = built_in_model("cpu");
  EXPECT_EQ(model.name, "cpu");
  for (const DeviceRate& rate :
       {model.f32_flops, model.bf16_flops, model.copy_bytes, model.link_bytes, model.peak_flops}) {
    EXPECT_FALSE(rate.is_known());
    EXPECT_EQ(rate.per_second, 0);
  }
  EXPECT_FALSE(limits_of(model, DType::kBf16));
}

// gradient_checkpointing: auto ranks activations by these figures, so a change of one changes programs and plans.
TEST(DeviceModel, WhatRecomputationRanksByStays) {
  const DeviceModel host = built_in_model(DeviceKind::kCpu);
  EXPECT_EQ(host.bf16_flops.per_second, 1e11);
  EXPECT_EQ(host.copy_bytes.per_second, 1e10);
  const DeviceModel gpu = built_in_model(DeviceKind::kCuda);
  EXPECT_EQ(gpu.bf16_flops.per_second, 6.5e14);
  EXPECT_EQ(gpu.copy_bytes.per_second, 2.6e12);
}

TEST(DeviceModel, MeasuredFiguresGoBeforeBuiltInOnes) {
  const DeviceModel measured{.name = "one",
                             .f32_flops = {},
                             .bf16_flops = {3, RateSource::kMeasured},
                             .copy_bytes = {},
                             .link_bytes = {},
                             .peak_flops = {},
                             .copies = {{1, 2}}};
  const DeviceModel model = merged(measured, built_in_model("NVIDIA H200"));
  EXPECT_EQ(model.name, "one");
  EXPECT_EQ(model.bf16_flops.per_second, 3);
  EXPECT_EQ(model.bf16_flops.source, RateSource::kMeasured);
  EXPECT_EQ(model.copy_bytes.source, RateSource::kBuiltIn);
  EXPECT_EQ(model.peak_flops.per_second, 989.4e12);
  EXPECT_FALSE(model.f32_flops.is_known());
  EXPECT_FALSE(limits_of(model, DType::kF32));
  const std::optional<DeviceLimits> limits = limits_of(model, DType::kBf16);
  ASSERT_TRUE(limits);
  EXPECT_EQ(limits->flops_per_second, 3);
  EXPECT_EQ(limits->copies.size(), 1u);
}

}  // namespace
}  // namespace hone::test
