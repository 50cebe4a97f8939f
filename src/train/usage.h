// What a run takes of its machine while it trains.
#pragma once

#include <string>

#include "backend/device.h"
#include "core/dtype.h"
#include "system/process.h"
#include "tracker/metric_row.h"

namespace hone {

[[nodiscard]] std::string device_text(const Device& device);  // "GPU: NVIDIA H100", "CPU"

// Sets, of the time since it was made or last asked: mfu (a share of what the device's data sheet promises for dense
// products of `dtype`), device_utilization and cpu_utilization (percent of all), device_memory_gib and
// device_memory_total_gib, process_memory_gib, system_memory (percent). NaN where something cannot be known: a host has
// no mfu and no utilization as a device.
class UsageMeter {
 public:
  UsageMeter(Device& device, DType dtype);

  // `flops_per_second`: what the run computed.
  void add_to(MetricRow& row, double flops_per_second);
  [[nodiscard]] std::string device() const { return device_text(device_); }

 private:
  Device& device_;
  double peak_flops_;
  CpuTime since_;
};

}  // namespace hone
