// Provides the limits of a device, its bandwidth and FLOP/s: the rates stored on this machine
// (backend/measured_rates.h) or, if there are none, rates measured now and then stored.
#pragma once

#include "backend/device_model.h"

namespace hone {

// Minimum duration of a measurement, in seconds, whose result is stored. Shorter ones are too noisy.
inline constexpr double kMinStoredSeconds = 0.2;

// Returns the limits for work in `dtype`: the stored ones unless `anew` is set, otherwise those measured now, copies
// and GEMMs for about `seconds` each. A CPU has one limit for f32 and bf16, because it computes both in f32.
[[nodiscard]] DeviceLimits device_limits(Device& device, DType dtype, double seconds, bool anew);

// Returns the FLOP/s of the fastest large GEMM in `dtype`: the stored rate, otherwise the one measured now for about
// `seconds`. Measures no copies.
[[nodiscard]] double gemm_limit(Device& device, DType dtype, double seconds);

}  // namespace hone
