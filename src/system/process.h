// Resource usage of this process and of the machine, as Linux reports it.
#pragma once

#include <cstdint>
#include <string>

namespace hone {

[[nodiscard]] std::string environment_variable(const char* name);  // "" if it is not set

[[nodiscard]] std::uint64_t resident_bytes();       // current resident set size in bytes; 0 if it cannot be read
[[nodiscard]] std::uint64_t peak_resident_bytes();  // largest resident set size since the start, in bytes

// Processor time of all cores of the machine since boot, in clock ticks; 0 if it cannot be read.
struct CpuTime {
  std::uint64_t busy = 0;
  std::uint64_t total = 0;
};
[[nodiscard]] CpuTime cpu_time();

// Memory of the machine in bytes, bounded by the limit of the process's cgroup (version 2); 0 if it cannot be read.
struct SystemMemory {
  std::uint64_t total = 0;
  std::uint64_t available = 0;  // without swapping
};
[[nodiscard]] SystemMemory system_memory();

}  // namespace hone
