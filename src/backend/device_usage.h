// Current load of a device: utilization and used memory.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/device.h"

namespace hone {

struct DeviceUsage {
  std::optional<double> busy_percent;  // recent GPU utilization by NVML; nullopt for the CPU and without NVML
  std::uint64_t used_bytes = 0;        // GPU: used by all processes; CPU: allocated in Buffers of this process
  std::uint64_t total_bytes = 0;
};
[[nodiscard]] DeviceUsage usage_of(const Device& device);

}  // namespace hone
