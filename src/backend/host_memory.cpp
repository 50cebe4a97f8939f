#include "backend/host_memory.h"

#ifdef HONE_CUDA
#include "backend/cuda/pinned_memory.h"
#endif

namespace hone {

Device& host_memory_of(Device& device) {
#ifdef HONE_CUDA
  if (device.kind() == DeviceKind::cuda) return pinned_memory();
#endif
  return device;
}

}  // namespace hone
