#include "train/resource_metrics.h"

#include <cmath>
#include <limits>

#include "backend/device_model.h"
#include "backend/device_usage.h"
#include "core/error.h"

namespace hone {
namespace {

constexpr double kBytesPerGib = 1024.0 * 1024.0 * 1024.0;
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

double gib(std::uint64_t bytes) { return bytes == 0 ? kUnknown : static_cast<double>(bytes) / kBytesPerGib; }

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? kUnknown : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

// Returns the FLOP/s of dense bf16 matmuls in the data sheet; NaN for other dtypes and unknown devices.
double peak_of(const Device& device, DType dtype) {
  const DeviceRate promised = built_in_model(device.name()).peak_flops;
  return dtype == DType::kBf16 && promised.is_known() ? promised.per_second : kUnknown;
}

}  // namespace

ResourceMeter::ResourceMeter(Device& device, DType dtype)
    : device_(device), peak_flops_(peak_of(device, dtype)), since_(cpu_time()) {}

void ResourceMeter::add_to(MetricRow& row, double flops_per_second) {
  row.set("mfu", flops_per_second / peak_flops_);
  const DeviceUsage usage = usage_of(device_);
  row.set("device_utilization", usage.busy_percent.value_or(kUnknown));
  row.set("device_memory_gib", gib(usage.used_bytes));
  row.set("device_memory_total_gib", gib(usage.total_bytes));
  const CpuTime now = cpu_time();
  row.set("cpu_utilization", percent(now.busy - since_.busy, now.total - since_.total));
  since_ = now;
  row.set("process_memory_gib", gib(resident_bytes()));
  const SystemMemory memory = system_memory();
  row.set("system_memory", percent(memory.total - memory.available, memory.total));
}

std::string device_text(const Device& device) {
  return device.kind() == DeviceKind::kCpu ? "CPU" : text_of("GPU: ", device.name());
}

}  // namespace hone
