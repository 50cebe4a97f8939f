#include "core/log.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <set>
#include <string>

namespace hone {
namespace {

std::atomic<bool> quiet_now{false};

void print(std::string_view prefix, std::string_view message) {
  std::string line(prefix);
  line.append(message).push_back('\n');
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

void log_info(std::string_view message) {
  if (!quiet_now) print("hone: ", message);
}

void log_warning(std::string_view message) { print("hone: warning: ", message); }

void log_once(std::string_view message) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> said;
  const std::scoped_lock lock(mutex);
  if (said.emplace(message).second) log_info(message);
}

void set_quiet(bool quiet) { quiet_now = quiet; }

}  // namespace hone
