// How much memory a device has.
#pragma once

#include <cstddef>

#include "backend/device.h"

namespace hone {

// Bytes.
struct DeviceMemory {
  std::size_t total = 0;
  std::size_t available = 0;  // to Buffers of this process, beyond those that it holds
};

// Now. A GPU: what its driver has free, less what libraries and recorded launches will take. The host: what the system
// says is available, within the limit of the process's group.
[[nodiscard]] DeviceMemory memory_of(const Device& device);
// The memory of a GPU with this many bytes, none of which anything else uses.
[[nodiscard]] DeviceMemory memory_of_gpu(std::size_t total);

}  // namespace hone
