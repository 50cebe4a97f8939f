// How long a piece of a device's work takes, and what the device can do.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "backend/device.h"

namespace hone {

// Median seconds of one call of each of `runs`, which give work to the device: over short rounds, in turns, so that all
// see the same clock and the same heat; for about `budget` seconds each, after calls that are not measured.
[[nodiscard]] std::vector<double> seconds_in_turns(Device& device, std::span<const std::function<void()>> runs,
                                                   double budget);
[[nodiscard]] double seconds_per_run(Device& device, const std::function<void()>& run, double budget);

// Measured, not looked up.
struct DeviceLimits {
  double copy_bytes_per_second = 0;  // read plus written
  double flops_per_second = 0;       // of a large matrix product in the type of the weights
  // The least time for so much work, in seconds.
  [[nodiscard]] double floor(double flops, double bytes) const;
};

// What rates are printed in: a host's would be 0.0 TFLOP/s.
struct FlopUnit {
  const char* name = "TFLOP/s";
  double scale = 1e12;
};
[[nodiscard]] FlopUnit flop_unit(double flops_per_second);

// `budget`: about as many seconds for each of the two.
[[nodiscard]] DeviceLimits measure_limits(Device& device, bool bf16, double budget);

}  // namespace hone
