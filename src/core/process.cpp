#include "core/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

namespace hone {

std::uint64_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  unsigned long long total = 0;
  unsigned long long resident = 0;
  const int count = std::fscanf(file, "%llu %llu", &total, &resident);
  std::fclose(file);
  return count == 2 ? resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

std::uint64_t peak_resident_bytes() {
  rusage usage{};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<std::uint64_t>(usage.ru_maxrss) * 1024 : 0;
}

}  // namespace hone
