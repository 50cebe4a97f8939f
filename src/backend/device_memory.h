// Total and available memory of a device.
#pragma once

#include <cstddef>

#include "backend/device.h"

namespace hone {

// Sizes in bytes.
struct DeviceMemory {
  std::size_t total = 0;
  std::size_t available = 0;  // for new Buffers of this process
};

// Returns the current state. The available memory of a GPU is the driver's free memory less 1 GiB for libraries,
// kernels and CUDA graphs; that of the host is what the system reports, within the limit of the process's cgroup.
[[nodiscard]] DeviceMemory memory_of(const Device& device);
// Returns the memory of an idle GPU with `total` bytes.
[[nodiscard]] DeviceMemory memory_of_gpu(std::size_t total);

}  // namespace hone
