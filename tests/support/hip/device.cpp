#include "support/hip/device.h"

#include <utility>

#include "backend/cuda/device.h"
#include "ops/registry.h"

namespace hone {

void register_emulated_kernels(KernelRegistry& registry);  // generated

namespace emulation {

// A build for CUDA has registered its kernels for the same kind of device.
Device& device() {
  static const bool registered = [] {
    register_operations();
    KernelRegistry kernels;
    register_all_ops_cpu(kernels);
    register_emulated_kernels(kernels);
    kernel_registry() = std::move(kernels);
    return true;
  }();
  (void)registered;
  return cuda_device();
}

}  // namespace emulation
}  // namespace hone
