// Host memory that a device accesses directly, for data that does not fit into the device's memory.
#pragma once

#include "backend/device.h"

namespace hone {

// Returns a Device that allocates such memory; there is one object per device and process. For a GPU this is pinned
// memory, whose addresses copies and kernels of the GPU accept. Host code must synchronize the GPU before it accesses
// the memory; upload() and download() of the returned device do so. For the CPU it is the CPU device itself.
[[nodiscard]] Device& host_memory_of(Device& device);

}  // namespace hone
