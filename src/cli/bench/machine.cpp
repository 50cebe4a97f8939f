#include "cli/bench/machine.h"

#include <sys/utsname.h>

#include <thread>

#include "backend/device_memory.h"
#include "backend/measured_rates.h"
#include "cli/bench/results.h"
#include "core/error.h"
#include "core/files.h"
#include "core/parallel.h"
#include "core/strings.h"
#include "system/process.h"

namespace hone {
namespace {

// Returns the name of the distribution.
std::string system_name() {
  constexpr const char* kFile = "/etc/os-release";
  constexpr std::string_view kKey = "PRETTY_NAME=";
  if (!is_file(kFile)) return "Linux";
  for (const std::string& line : split(read_file(kFile), '\n')) {
    if (!line.starts_with(kKey)) continue;
    std::string value = line.substr(kKey.size());
    std::erase(value, '"');
    return value;
  }
  return "Linux";
}

std::string kernel_version() {
  utsname names{};
  if (uname(&names) != 0) return "unknown";
  return text_of(names.sysname, " ", names.release, " ", names.machine);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> describe_machine(const Device& device) {
  std::vector<std::pair<std::string, std::string>> lines{{"device", device.name()}};
  if (device.kind() != DeviceKind::kCpu) lines.emplace_back("device memory", format_bytes(memory_of(device).total));
  lines.emplace_back("processor", processor_name());
  lines.emplace_back("logical cores", text_of(std::thread::hardware_concurrency()));
  lines.emplace_back("threads", text_of(thread_count()));
  lines.emplace_back("memory", format_bytes(system_memory().total));
  lines.emplace_back("system", text_of(system_name(), ", ", kernel_version()));
  lines.emplace_back("hone", HONE_VERSION);
  if (const std::string commit = commit_of("."); !commit.empty()) lines.emplace_back("commit of this folder", commit);
  lines.emplace_back("date", utc_now());
  return lines;
}

}  // namespace hone
