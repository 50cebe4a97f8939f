// Resource metrics of a training run: FLOP utilisation, device and host utilisation, and memory.
#pragma once

#include <string>

#include "backend/device.h"
#include "core/dtype.h"
#include "system/process.h"
#include "tracker/metric_row.h"

namespace hone {

// Returns a name for the log: "GPU: NVIDIA H100" or "CPU".
[[nodiscard]] std::string device_text(const Device& device);

// Measures the resources used since it was created or last called: mfu (share of the dense matmul rate in the device's
// data sheet; bf16 only), device_utilization, cpu_utilization and system_memory (percent of the whole),
// device_memory_gib, device_memory_total_gib and process_memory_gib (GiB). Values that are not known are NaN: the CPU
// as a device has no mfu and no utilization.
class ResourceMeter {
 public:
  ResourceMeter(Device& device, DType dtype);

  // Sets the metrics in a row. flops_per_second: rate of the run since the last call.
  void add_to(MetricRow& row, double flops_per_second);
  [[nodiscard]] std::string device() const { return device_text(device_); }

 private:
  Device& device_;
  double peak_flops_;
  CpuTime since_;
};

}  // namespace hone
