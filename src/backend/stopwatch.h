// Measures the time that a device takes for its work.
#pragma once

#include <memory>
#include <vector>

#include "backend/device.h"

namespace hone {

// Sets marks in the stream of a device and reads the times between them.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  virtual void mark() = 0;  // sets a mark after the work submitted so far
  // Waits for all marks, returns the seconds between consecutive ones ([marks - 1]) and removes the marks.
  [[nodiscard]] virtual std::vector<double> read() = 0;
};

// Creates a stopwatch. On a GPU a mark is a CUDA event, which takes about 1 us of GPU time and does not block the host;
// on the CPU mark() synchronizes the device.
[[nodiscard]] std::unique_ptr<Stopwatch> make_stopwatch(Device& device);

}  // namespace hone
