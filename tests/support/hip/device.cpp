#include "support/hip/device.h"

#include "backend/cuda/device.h"
#include "program/kernel.h"

namespace hone {

void register_emulated_kernels(KernelRegistry& registry);  // generated

namespace emulation {

Device& device() {
  static const bool registered = [] {
    register_emulated_kernels(kernel_registry());
    return true;
  }();
  (void)registered;
  return cuda_device();
}

}  // namespace emulation
}  // namespace hone
