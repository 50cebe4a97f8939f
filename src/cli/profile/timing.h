// How long a piece of a device's work takes, and what the device can do.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/device.h"
#include "backend/device_model.h"

namespace hone {

// Median seconds of one call of each of `runs`, which give work to the device: over short rounds, in turns, so that all
// see the same clock and the same heat; for about `budget` seconds each, after calls that are not measured.
[[nodiscard]] std::vector<double> seconds_in_turns(Device& device, std::span<const std::function<void()>> runs,
                                                   double budget);
[[nodiscard]] double seconds_per_run(Device& device, const std::function<void()>& run, double budget);

// "53.4 GFLOP/s", "1.23 TFLOP/s": three digits, in the unit that fits.
[[nodiscard]] std::string flops_text(double flops_per_second);

// What the rates of a table are printed in: a host's would be 0.0 TFLOP/s.
struct FlopUnit {
  const char* name = "TFLOP/s";
  double scale = 1e12;
};
[[nodiscard]] FlopUnit flop_unit(double flops_per_second);

// FLOP/s of the fastest large matrix product, measured for about `budget` seconds.
[[nodiscard]] double product_limit(Device& device, bool bf16, double budget);
// `budget`: about as many seconds for copies and for products.
[[nodiscard]] DeviceLimits measure_limits(Device& device, bool bf16, double budget);

}  // namespace hone
