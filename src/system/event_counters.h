// Counts events of the processor and the kernel in the threads of this process, by Linux's perf_event_open.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

// The counters at one time: [events][threads] of count, nanoseconds enabled and nanoseconds counted.
using EventReading = std::vector<std::vector<std::array<std::uint64_t, 3>>>;
// Returns [events], the sums over the threads of what was counted between two readings. An event that shared a hardware
// counter with others is scaled by the share of this time in which it was counted; 0 if it was not counted in it.
[[nodiscard]] std::vector<double> events_between(const EventReading& before, const EventReading& after);

class EventCounters {
 public:
  // Opens the events that this machine allows, for all threads that the process has now. Threads that start later are
  // not counted. Never throws for an event that is refused.
  EventCounters();
  EventCounters(const EventCounters&) = delete;
  EventCounters& operator=(const EventCounters&) = delete;
  ~EventCounters();

  // Names of the events that are counted: of "cpu_ns", "page_faults", "context_switches", and with hardware counters
  // "cycles", "instructions" and "cache_misses" (of the last level). User space only, except for switches and faults.
  [[nodiscard]] const std::vector<std::string_view>& names() const { return names_; }
  // Returns one line that names the events which cannot be counted and their reasons; empty if there are none.
  [[nodiscard]] const std::string& refusal() const { return refusal_; }
  [[nodiscard]] EventReading read() const;  // [names][threads], since the construction

 private:
  std::vector<std::string_view> names_;
  std::vector<std::vector<int>> descriptors_;  // [names][threads]
  std::string refusal_;
};

}  // namespace hone
