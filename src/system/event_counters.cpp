#include "system/event_counters.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <map>

#include "core/error.h"
#include "core/files.h"
#include "core/strings.h"

namespace hone {
namespace {

struct Event {
  std::string_view name;
  std::uint32_t type;
  std::uint64_t config;
};
constexpr std::array<Event, 6> kEvents{{{"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
                                        {"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
                                        {"cache_misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES},
                                        {"cpu_ns", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK},
                                        {"page_faults", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS},
                                        {"context_switches", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES}}};

// Returns the descriptor of an event in one thread, or -1 with errno.
int open_event(const Event& event, pid_t thread) {
  perf_event_attr attributes{};
  attributes.size = sizeof(attributes);
  attributes.type = event.type;
  attributes.config = event.config;
  attributes.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  // Software events happen in the kernel. An unprivileged process may count its own of them, but no cycles there.
  attributes.exclude_kernel = event.type == PERF_TYPE_HARDWARE;
  attributes.exclude_hv = 1;
  const long descriptor = syscall(SYS_perf_event_open, &attributes, thread, -1, -1, PERF_FLAG_FD_CLOEXEC);
  if (descriptor >= 0 || event.type == PERF_TYPE_HARDWARE) return static_cast<int>(descriptor);
  attributes.exclude_kernel = 1;  // perf_event_paranoid above 1
  return static_cast<int>(syscall(SYS_perf_event_open, &attributes, thread, -1, -1, PERF_FLAG_FD_CLOEXEC));
}

const char* hint_of(int reason) {
  switch (reason) {
    case EACCES:
    case EPERM:
      return "; set /proc/sys/kernel/perf_event_paranoid to 1 or lower";
    case ENOENT:
    case EOPNOTSUPP:
      return "; this machine, perhaps a virtual one, has none";
    case EMFILE:
      return "; each event of a thread is an open file, raise ulimit -n";
    default:
      return "";
  }
}

std::vector<pid_t> thread_ids() {
  std::vector<pid_t> ids;
  for (const std::string& name : list_folder("/proc/self/task")) {
    pid_t id = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (error == std::errc()) ids.push_back(id);
  }
  return ids;
}

}  // namespace

EventCounters::EventCounters() {
  const std::vector<pid_t> ids = thread_ids();
  std::map<int, std::vector<std::string>> refused;  // by errno
  for (const Event& event : kEvents) {
    std::vector<int> opened;
    int reason = ESRCH;
    for (const pid_t id : ids) {
      const int descriptor = open_event(event, id);
      if (descriptor < 0 && errno == ESRCH) continue;  // the thread has ended
      if (descriptor < 0) {
        reason = errno;
        for (const int each : opened) close(each);
        opened.clear();
        break;
      }
      opened.push_back(descriptor);
    }
    if (opened.empty()) {
      refused[reason].emplace_back(event.name);
      continue;
    }
    names_.push_back(event.name);
    descriptors_.push_back(std::move(opened));
  }
  for (const auto& [reason, events] : refused) {
    refusal_ += text_of(refusal_.empty() ? "not counted: " : "; ", join(events, ", "),
                        " (perf_event_open: ", std::strerror(reason), hint_of(reason), ")");
  }
}

EventCounters::~EventCounters() {
  for (const std::vector<int>& event : descriptors_) {
    for (const int descriptor : event) close(descriptor);
  }
}

EventReading EventCounters::read() const {
  EventReading reading(descriptors_.size());
  for (std::size_t i = 0; i < descriptors_.size(); ++i) {
    for (const int descriptor : descriptors_[i]) {
      std::array<std::uint64_t, 3>& value = reading[i].emplace_back();
      if (::read(descriptor, value.data(), sizeof(value)) != static_cast<ssize_t>(sizeof(value))) value = {};
    }
  }
  return reading;
}

std::vector<double> events_between(const EventReading& before, const EventReading& after) {
  std::vector<double> sums(after.size(), 0);
  for (std::size_t i = 0; i < after.size(); ++i) {
    for (std::size_t thread = 0; thread < after[i].size(); ++thread) {
      const auto& from = before[i][thread];
      const auto& to = after[i][thread];
      if (to[2] <= from[2]) continue;
      // Scaling the difference, and not both ends by their different shares, keeps it from becoming negative.
      sums[i] += static_cast<double>(to[0] - from[0]) * static_cast<double>(to[1] - from[1]) /
                 static_cast<double>(to[2] - from[2]);
    }
  }
  return sums;
}

}  // namespace hone
