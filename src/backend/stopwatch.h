// Times of a device's work.
#pragma once

#include <memory>
#include <vector>

#include "backend/device.h"

namespace hone {

// Marks in a device's work, and when they were passed.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  virtual void mark() = 0;  // behind the work given so far
  // Seconds from each mark to the next, waited for; the marks are forgotten.
  [[nodiscard]] virtual std::vector<double> read() = 0;
};

// A GPU's marks cost it a microsecond and the host no waiting; the host's wait for the device.
[[nodiscard]] std::unique_ptr<Stopwatch> make_stopwatch(Device& device);

}  // namespace hone
