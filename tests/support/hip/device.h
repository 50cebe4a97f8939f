// The emulated GPU as a device of this process, with the kernels of a build for HIP.
#pragma once

#include "backend/device.h"

namespace hone::emulation {

// Returns the device; the first call registers its kernels in place of those of a build for CUDA.
[[nodiscard]] Device& device();

}  // namespace hone::emulation
