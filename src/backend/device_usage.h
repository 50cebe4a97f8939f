// How busy a device is, and what its data sheet promises.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "backend/device.h"

namespace hone {

struct DeviceUsage {
  std::optional<double> busy_percent;  // of the last moments, by NVML; nothing for the host, or where NVML is not there
  std::uint64_t used_bytes = 0;        // a GPU: by all processes; the host: what hone's buffers hold
  std::uint64_t total_bytes = 0;
};
[[nodiscard]] DeviceUsage usage_of(const Device& device);

// Dense bf16 products with f32 sums, in FLOP/s, by the maker's data sheet of the device of this name; nothing where it
// is not in the table.
[[nodiscard]] std::optional<double> promised_flops(std::string_view device_name);

}  // namespace hone
