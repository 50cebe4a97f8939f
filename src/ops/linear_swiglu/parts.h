// The two operations one after the other, on any device: what runs where no kernel computes both.
#pragma once

#include <cstddef>

#include "program/kernel.h"

namespace hone {

// Runs `linear` into scratch memory and `swiglu` from there.
void run_linear_and_swiglu(const KernelCall& call);

// Returns the bytes of scratch memory that this needs on a device.
[[nodiscard]] std::size_t linear_and_swiglu_workspace(DeviceKind device, InputTypes inputs);

}  // namespace hone
