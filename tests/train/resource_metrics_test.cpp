#include "train/resource_metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/device.h"

namespace hone::test {
namespace {

TEST(Usage, WhatTheHostCanSayIsThere) {
  Device& device = cpu_device();
  const Buffer held(device, std::size_t{64} << 20);
  ResourceMeter meter(device, DType::kBf16);
  MetricRow row;
  meter.add_to(row, 1e9);
  EXPECT_TRUE(std::isnan(row.find("mfu").value()));
  EXPECT_TRUE(std::isnan(row.find("device_utilization").value()));
  EXPECT_GE(row.find("device_memory_gib").value(), 0.0625);
  EXPECT_GT(row.find("device_memory_total_gib").value(), row.find("device_memory_gib").value());
  EXPECT_GT(row.find("process_memory_gib").value(), 0);
  for (const char* name : {"system_memory", "cpu_utilization"}) {
    const double percent = row.find(name).value();
    EXPECT_TRUE(std::isnan(percent) || (percent >= 0 && percent <= 100)) << name << " " << percent;
  }
  EXPECT_EQ(meter.device(), "CPU");
}

}  // namespace
}  // namespace hone::test
