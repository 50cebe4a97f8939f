#include "backend/host_memory.h"

#include "backend/gpu.h"

namespace hone {

Device& host_memory_of(Device& device) { return device.kind() == DeviceKind::kCuda ? gpu_host_memory() : device; }

}  // namespace hone
