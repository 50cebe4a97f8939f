// What a device can do: as it was measured on this machine (backend/measured_rates.h), else measured now and kept.
#pragma once

#include "backend/device_model.h"

namespace hone {

// What is measured for a shorter time says too little to be kept.
inline constexpr double kKeptSeconds = 0.2;

// The limits of work in `dtype`: those kept, unless they are wanted `anew`; else measured, copies and products for
// about `seconds` each, and kept. A host multiplies in f32 whatever the type.
[[nodiscard]] DeviceLimits device_limits(Device& device, DType dtype, double seconds, bool anew);

// FLOP/s of the fastest large matrix product: the one kept, else measured for about `seconds`, and kept.
[[nodiscard]] double product_limit(Device& device, DType dtype, double seconds);

}  // namespace hone
