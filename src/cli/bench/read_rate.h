// The rate at which the CPU reads memory, the limit of decoding.
#pragma once

#include <cstddef>

#include "backend/device.h"

namespace hone {

// A buffer that all threads read from its start to its end.
class ReadRate {
 public:
  // `bytes` should be several times the size of the caches; it is rounded down to whole lines of the caches.
  ReadRate(Device& cpu, std::size_t bytes);

  // Returns the bytes per second of the fastest of several passes, made now.
  [[nodiscard]] double measure() const;

 private:
  Device& cpu_;
  Buffer buffer_;
};

}  // namespace hone
