// How long a piece of a device's work takes.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/device.h"

namespace hone {

// Median seconds of one call of each of `runs`, which give work to the device: over short rounds, in turns, so that all
// see the same clock and the same heat; for about `budget` seconds each, after calls that are not measured.
[[nodiscard]] std::vector<double> seconds_in_turns(Device& device, std::span<const std::function<void()>> runs,
                                                   double budget);
[[nodiscard]] double seconds_per_run(Device& device, const std::function<void()>& run, double budget);
// The seconds of the best round in place of the median: others share the device with whatever else the machine does.
[[nodiscard]] double least_seconds(Device& device, const std::function<void()>& run, double budget);

// "53.4 GFLOP/s", "1.23 TFLOP/s": three digits, in the unit that fits.
[[nodiscard]] std::string flops_text(double flops_per_second);

// What the rates of a table are printed in: a host's would be 0.0 TFLOP/s.
struct FlopUnit {
  const char* name = "TFLOP/s";
  double scale = 1e12;
};
[[nodiscard]] FlopUnit flop_unit(double flops_per_second);

}  // namespace hone
