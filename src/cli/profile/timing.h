// Measures how long work takes on a device.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/device.h"

namespace hone {

using Clock = std::chrono::steady_clock;
[[nodiscard]] inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Returns the median seconds of one call of each of `runs`, functions that launch work on the device. Each is measured
// for about `budget` seconds after a warm-up. The runs alternate in short rounds, so that all of them see the same
// clock frequency and temperature.
[[nodiscard]] std::vector<double> seconds_in_turns(Device& device, std::span<const std::function<void()>> runs,
                                                   double budget);
// Returns the median seconds of one call.
[[nodiscard]] double seconds_per_run(Device& device, const std::function<void()>& run, double budget);
// Returns the seconds of one call in the fastest round. Unlike the median, this excludes time in which other processes
// used the device.
[[nodiscard]] double min_seconds(Device& device, const std::function<void()>& run, double budget);

// Returns a rate with three digits in the unit that fits: "53.4 GFLOP/s", "1.23 TFLOP/s".
[[nodiscard]] std::string flops_text(double flops_per_second);

// Unit for the rates of a table. A CPU's rates are printed in GFLOP/s, because they would round to 0.0 TFLOP/s.
struct FlopUnit {
  const char* name = "TFLOP/s";
  double scale = 1e12;
};
// Returns the unit for a table whose largest rate is this one.
[[nodiscard]] FlopUnit flop_unit(double flops_per_second);

}  // namespace hone
