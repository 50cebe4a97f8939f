#include "backend/device_memory.h"

#include <algorithm>

#include "backend/gpu.h"
#include "system/process.h"

namespace hone {
namespace {

// GPU memory that cuBLASLt, hone's kernels and CUDA graphs take during a run, rounded up.
constexpr std::size_t kLibraryBytes = std::size_t{1} << 30;

// Bytes that a process can allocate of `free` bytes.
std::size_t usable(std::size_t free) { return free - std::min(free, kLibraryBytes); }

}  // namespace

DeviceMemory memory_of_gpu(std::size_t total) { return {total, usable(total)}; }

DeviceMemory memory_of(const Device& device) {
  if (device.kind() == DeviceKind::kCuda) {
    const DeviceMemory gpu = gpu_memory();
    return {gpu.total, usable(gpu.available)};
  }
  const SystemMemory memory = system_memory();
  return {static_cast<std::size_t>(memory.total), static_cast<std::size_t>(memory.available)};
}

}  // namespace hone
