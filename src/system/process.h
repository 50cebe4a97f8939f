// What the system says of this process.
#pragma once

#include <cstdint>
#include <string>

namespace hone {

[[nodiscard]] std::string environment_variable(const char* name);  // "" where it is not set

[[nodiscard]] std::uint64_t resident_bytes();       // now; 0 where it cannot be read
[[nodiscard]] std::uint64_t peak_resident_bytes();  // since the start

// Of all the machine's cores since it was started, in ticks; 0 where it cannot be read.
struct CpuTime {
  std::uint64_t busy = 0;
  std::uint64_t total = 0;
};
[[nodiscard]] CpuTime cpu_time();

// Bytes. 0 where it cannot be read.
struct SystemMemory {
  std::uint64_t total = 0;
  std::uint64_t available = 0;  // without swapping, and within the limit of the process's control group (version 2)
};
[[nodiscard]] SystemMemory system_memory();

}  // namespace hone
