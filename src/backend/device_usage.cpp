#include "backend/device_usage.h"

#include "backend/gpu.h"
#include "system/process.h"

namespace hone {

DeviceUsage usage_of(const Device& device) {
  if (device.kind() == DeviceKind::kCuda) return gpu_usage();
  return {.busy_percent = std::nullopt, .used_bytes = device.allocated_bytes(), .total_bytes = system_memory().total};
}

}  // namespace hone
