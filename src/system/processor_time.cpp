#include "system/processor_time.h"

#include <dirent.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/descriptor.h"
#include "core/error.h"

namespace hone {
namespace {

// Fields of /proc/ID/stat of a process or thread.
struct Stat {
  char state = '?';
  pid_t parent = 0;
  std::int64_t ticks = 0;  // clock ticks used by the process and by the children that it has reaped
};

// Reads up to 1024 bytes of a file in /proc; empty if the process has ended.
std::string file_of_proc(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> bytes{};
  const ssize_t count = file.open() ? read(file.number(), bytes.data(), bytes.size()) : 0;
  return count > 0 ? std::string(bytes.data(), static_cast<std::size_t>(count)) : std::string();
}

// Parses "ID (NAME) STATE PARENT ...". The name may contain blanks and parentheses, so the search for its end starts at
// the end of the text.
std::optional<Stat> stat_at(const std::string& path) {
  const std::string text = file_of_proc(path);
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return std::nullopt;
  constexpr int kState = 3;  // numbers of fields as in proc(5)
  constexpr int kParent = 4;
  constexpr int kFirstTime = 14;  // utime, stime, cutime, cstime
  constexpr int kLastTime = 17;
  Stat stat;
  std::string_view rest = std::string_view(text).substr(name_end + 2);
  for (int field = kState; field <= kLastTime; ++field) {
    const std::size_t end = rest.find(' ');
    const std::string_view word = rest.substr(0, end);
    std::int64_t number = 0;
    std::from_chars(word.data(), word.data() + word.size(), number);
    if (field == kState) stat.state = word.empty() ? '?' : word.front();
    if (field == kParent) stat.parent = static_cast<pid_t>(number);
    if (field >= kFirstTime) stat.ticks += number;
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + 1);
  }
  return stat;
}

std::vector<pid_t> numeric_entries(const std::string& folder) {
  std::vector<pid_t> numbers;
  const std::unique_ptr<DIR, int (*)(DIR*)> open_folder(opendir(folder.c_str()), &closedir);
  if (open_folder == nullptr) return numbers;
  while (const dirent* entry = readdir(open_folder.get())) {
    const std::string_view name = entry->d_name;
    pid_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc{} && end == name.data() + name.size()) numbers.push_back(number);
  }
  return numbers;
}

bool has_running_thread(pid_t process) {
  const std::string folder = text_of("/proc/", process, "/task");
  for (const pid_t thread : numeric_entries(folder)) {
    const std::optional<Stat> stat = stat_at(text_of(folder, "/", thread, "/stat"));
    if (stat && stat->state == 'R') return true;
  }
  return false;
}

}  // namespace

std::chrono::nanoseconds processor_time_of(pid_t process) {
  clockid_t clock{};
  timespec time{};
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0) return {};
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

ProcessorTime processor_time_of_tree(pid_t root) {
  std::unordered_map<pid_t, Stat> all;
  std::unordered_map<pid_t, std::vector<pid_t>> children;
  for (const pid_t process : numeric_entries("/proc")) {
    const std::optional<Stat> stat = stat_at(text_of("/proc/", process, "/stat"));
    if (!stat) continue;
    all[process] = *stat;
    children[stat->parent].push_back(process);
  }
  ProcessorTime time;
  std::int64_t ticks = 0;
  std::vector<pid_t> left{root};
  while (!left.empty()) {
    const pid_t process = left.back();
    left.pop_back();
    if (const auto found = all.find(process); found != all.end()) ticks += found->second.ticks;
    time.is_wanted = time.is_wanted || has_running_thread(process);
    if (const auto found = children.find(process); found != children.end()) {
      left.insert(left.end(), found->second.begin(), found->second.end());
      children.erase(found);  // visit each parent once: ids reused during the scan could form a cycle
    }
  }
  time.used = std::chrono::milliseconds(ticks * 1000 / sysconf(_SC_CLK_TCK));
  return time;
}

pid_t process_of(int pidfd) {
  const std::string text = file_of_proc(text_of("/proc/self/fdinfo/", pidfd));
  constexpr std::string_view kKey = "\nPid:\t";
  const std::size_t at = text.find(kKey);
  pid_t process = 0;
  if (at != std::string::npos) {
    std::from_chars(text.data() + at + kKey.size(), text.data() + text.size(), process);
  }
  return process > 0 ? process : 0;
}

}  // namespace hone
