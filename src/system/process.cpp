#include "system/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace hone {
namespace {

// Reads a file that holds one number. Returns false if it is missing or holds a word such as "max".
bool read_number(const char* path, unsigned long long& number) {
  std::FILE* file = std::fopen(path, "r");
  if (file == nullptr) return false;
  const int count = std::fscanf(file, "%llu", &number);
  std::fclose(file);
  return count == 1;
}

// Page cache of the cgroup that the kernel can reclaim (inactive_file), in bytes.
unsigned long long droppable_bytes() {
  std::FILE* file = std::fopen("/sys/fs/cgroup/memory.stat", "r");
  if (file == nullptr) return 0;
  unsigned long long bytes = 0;
  char line[128];
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    if (std::sscanf(line, "inactive_file %llu", &bytes) == 1) break;
  }
  std::fclose(file);
  return bytes;
}

}  // namespace

std::string environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

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

CpuTime cpu_time() {
  std::FILE* file = std::fopen("/proc/stat", "r");
  if (file == nullptr) return {};
  // user, nice, system, idle, iowait, irq, softirq, steal
  unsigned long long ticks[8] = {};
  const int count = std::fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &ticks[0], &ticks[1], &ticks[2],
                                &ticks[3], &ticks[4], &ticks[5], &ticks[6], &ticks[7]);
  std::fclose(file);
  if (count < 5) return {};
  CpuTime time;
  for (const unsigned long long each : ticks) time.total += each;
  time.busy = time.total - ticks[3] - ticks[4];
  return time;
}

SystemMemory system_memory() {
  SystemMemory memory;
  std::FILE* file = std::fopen("/proc/meminfo", "r");
  if (file == nullptr) return memory;
  char line[128];
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    unsigned long long kib = 0;
    if (std::sscanf(line, "MemTotal: %llu kB", &kib) == 1) memory.total = kib * 1024;
    if (std::sscanf(line, "MemAvailable: %llu kB", &kib) == 1) memory.available = kib * 1024;
  }
  std::fclose(file);
  unsigned long long limit = 0;
  unsigned long long used = 0;
  if (read_number("/sys/fs/cgroup/memory.max", limit) && read_number("/sys/fs/cgroup/memory.current", used)) {
    memory.total = std::min<std::uint64_t>(memory.total, limit);
    used -= std::min(used, droppable_bytes());
    memory.available = std::min<std::uint64_t>(memory.available, limit - std::min(limit, used));
  }
  return memory;
}

}  // namespace hone
