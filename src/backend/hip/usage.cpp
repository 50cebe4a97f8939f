#include "backend/cuda/device.h"
#include "backend/gpu.h"
#include "backend/gpu_counters.h"

namespace hone {

// The memory only: no library is read that knows how busy the GPU is.
DeviceUsage gpu_usage() {
  DeviceUsage usage;
  std::size_t free = 0;
  std::size_t total = 0;
  if (cudaMemGetInfo(&free, &total) == cudaSuccess) {
    usage.used_bytes = total - free;
    usage.total_bytes = total;
  }
  return usage;
}

std::unique_ptr<GpuCounters> make_gpu_counters(Device&) {
  throw Error("counters", "a build for HIP counts no events of kernels", "remove the option that asks for them");
}

}  // namespace hone
