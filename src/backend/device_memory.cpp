#include "backend/device_memory.h"

#include <algorithm>

#include "system/process.h"
#ifdef HONE_CUDA
#include <cuda_runtime_api.h>

#include "backend/cuda/check.h"
#endif

namespace hone {
namespace {

// What cuBLASLt's kernels, hone's own and recorded launches take of a GPU while a run goes on, rounded up.
constexpr std::size_t kLibraryBytes = std::size_t{1} << 30;

#ifdef HONE_CUDA
DeviceMemory gpu_memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return {total, free - std::min(free, kLibraryBytes)};
}
#endif

}  // namespace

DeviceMemory memory_of_gpu(std::size_t total) { return {total, total - std::min(total, kLibraryBytes)}; }

DeviceMemory memory_of(const Device& device) {
#ifdef HONE_CUDA
  if (device.kind() == DeviceKind::cuda) return gpu_memory();
#endif
  (void)device;
  const SystemMemory memory = system_memory();
  return {static_cast<std::size_t>(memory.total), static_cast<std::size_t>(memory.available)};
}

}  // namespace hone
