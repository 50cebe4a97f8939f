// How long a piece of a device's work takes, and what the device can do.
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

// Measured, not looked up.
struct DeviceLimits {
  // Copies of different sizes, by all threads of a host: what caches hold moves faster than what memory holds.
  struct Copy {
    double bytes = 0;             // read plus written
    double bytes_per_second = 0;  // of them
  };
  double copy_bytes_per_second = 0;  // read plus written, of the largest copy
  double flops_per_second = 0;       // of the fastest large product: in the type of the weights; a host's in any type
  std::vector<Copy> copies = {};     // by size, ascending

  // The best rate of copies that move a quarter of so many bytes or more.
  [[nodiscard]] double bytes_per_second(double bytes) const;
  // The least time for so much work, in seconds.
  [[nodiscard]] double floor(double flops, double bytes) const;
  // The share of what is possible that so much work in so many seconds is, at most 1: what was reached is possible,
  // however it was measured.
  [[nodiscard]] double reached(double flops, double bytes, double seconds) const;
};

// "53.4 GFLOP/s", "1.23 TFLOP/s": three digits, in the unit that fits.
[[nodiscard]] std::string flops_text(double flops_per_second);
// The dense bfloat16 peak of a GPU that hone knows by name, in FLOP/s; 0 where it does not.
[[nodiscard]] double known_peak(const Device& device);

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
