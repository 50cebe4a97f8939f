#include "system/event_counters.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>

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
  std::vector<std::string> refused;
  int reason = 0;
  for (const Event& event : kEvents) {
    std::vector<int> opened;
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
      refused.emplace_back(event.name);
      continue;
    }
    names_.push_back(event.name);
    descriptors_.push_back(std::move(opened));
  }
  if (refused.empty()) return;
  const char* hint = reason == EACCES || reason == EPERM ? "; set /proc/sys/kernel/perf_event_paranoid to 1 or lower"
                     : reason == ENOENT || reason == EOPNOTSUPP ? "; this machine, perhaps a virtual one, has none"
                                                                : "";
  refusal_ = text_of("not counted: ", join(refused, ", "), " (perf_event_open: ", std::strerror(reason), hint, ")");
}

EventCounters::~EventCounters() {
  for (const std::vector<int>& event : descriptors_) {
    for (const int descriptor : event) close(descriptor);
  }
}

std::vector<double> EventCounters::read() const {
  std::vector<double> sums(names_.size(), 0);
  for (std::size_t i = 0; i < descriptors_.size(); ++i) {
    for (const int descriptor : descriptors_[i]) {
      std::array<std::uint64_t, 3> value{};  // count, nanoseconds enabled, nanoseconds counted
      if (::read(descriptor, value.data(), sizeof(value)) != static_cast<ssize_t>(sizeof(value)) || value[2] == 0)
        continue;
      sums[i] += static_cast<double>(value[0]) * static_cast<double>(value[1]) / static_cast<double>(value[2]);
    }
  }
  return sums;
}

}  // namespace hone
