#include "cli/bench/machine.h"

#include <sys/utsname.h>

#include <ctime>
#include <thread>

#include "backend/device_memory.h"
#include "cli/bench/results.h"
#include "core/error.h"
#include "core/files.h"
#include "core/parallel.h"
#include "core/strings.h"
#include "system/process.h"

namespace hone {
namespace {

// Returns the value of the first line of a file that begins with `key`, without quotes; empty if there is none.
std::string value_in(const char* path, std::string_view key, char separator) {
  if (!is_file(path)) return {};
  for (const std::string& line : split(read_file(path), '\n')) {
    if (!line.starts_with(key)) continue;
    const std::size_t at = line.find(separator);
    if (at == std::string::npos) continue;
    std::string value(trim(std::string_view(line).substr(at + 1)));
    std::erase(value, '"');
    return value;
  }
  return {};
}

std::string kernel_version() {
  utsname names{};
  if (uname(&names) != 0) return "unknown";
  return text_of(names.sysname, " ", names.release, " ", names.machine);
}

std::string utc_now() {
  const std::time_t seconds = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &parts);
  return text;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> describe_machine(const Device& device) {
  std::vector<std::pair<std::string, std::string>> lines{{"device", device.name()}};
  if (device.kind() != DeviceKind::kCpu) lines.emplace_back("device memory", format_bytes(memory_of(device).total));
  lines.emplace_back("processor", value_in("/proc/cpuinfo", "model name", ':'));
  lines.emplace_back("logical cores", text_of(std::thread::hardware_concurrency()));
  lines.emplace_back("threads", text_of(thread_count()));
  lines.emplace_back("memory", format_bytes(system_memory().total));
  lines.emplace_back("system", text_of(value_in("/etc/os-release", "PRETTY_NAME=", '='), ", ", kernel_version()));
  lines.emplace_back("hone", HONE_VERSION);
  if (const std::string commit = commit_of("."); !commit.empty()) lines.emplace_back("commit of this folder", commit);
  lines.emplace_back("date", utc_now());
  return lines;
}

}  // namespace hone
