// Memory of the host that a device reads and writes by itself.
#pragma once

#include "backend/device.h"

namespace hone {

// Where to keep what a device has no room for. For a GPU: pinned memory, whose addresses its copies and kernels take;
// host code must synchronize the GPU before it looks at it, as upload and download of the result do. For the host: the
// host itself. One object a device for the process.
[[nodiscard]] Device& host_memory_of(Device& device);

}  // namespace hone
