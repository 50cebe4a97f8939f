// How busy a device is.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/device.h"

namespace hone {

struct DeviceUsage {
  std::optional<double> busy_percent;  // of the last moments, by NVML; nothing for the host, or where NVML is not there
  std::uint64_t used_bytes = 0;        // a GPU: by all processes; the host: what hone's buffers hold
  std::uint64_t total_bytes = 0;
};
[[nodiscard]] DeviceUsage usage_of(const Device& device);

}  // namespace hone
