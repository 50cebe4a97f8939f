// Counts the processor's events of each operation of some training steps, on a CPU.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/profile/report.h"
#include "core/json.h"
#include "program/node_observer.h"
#include "system/event_counters.h"

namespace hone {

// Observes one run at a time, like NodeClock. Create it after the threads of the process have been started.
class NodeCounters final : public NodeObserver {
 public:
  [[nodiscard]] const EventCounters& events() const { return events_; }
  // Returns [nodes][events + 1] of the last run; the last column is the elapsed seconds.
  [[nodiscard]] std::span<const std::vector<double>> counts() const { return counts_; }

  void begin_run(Stopwatch& stopwatch) override;
  void before_node(std::size_t node, Stopwatch& stopwatch) override;
  void after_node(std::size_t node, Stopwatch& stopwatch) override;

 private:
  EventCounters events_;
  std::vector<std::vector<double>> counts_;
  EventReading before_;
  double begin_ = 0;
};

// Events of one operation of a module and phase, per step.
struct CountedKernel {
  std::string op;
  std::string module;
  std::string_view phase;
  double seconds = 0;
  std::vector<double> counts;  // [names]
};

struct CounterReport {
  std::vector<std::string_view> names;      // EventCounters::names()
  std::string refusal;                      // EventCounters::refusal(), or why nothing was counted
  std::vector<CountedKernel> kernels = {};  // slowest first
};

// Sums the counts of runs of the timeline's nodes.
struct CountedRun {
  std::size_t node = 0;        // index of Timeline::nodes
  std::vector<double> counts;  // [events + 1], as NodeCounters::counts()
};
[[nodiscard]] CounterReport counter_report(const NodeCounters& counters, const Timeline& timeline,
                                           std::span<const CountedRun> runs);

// Returns a table of the `most` slowest operations, after the line of what is not counted.
[[nodiscard]] std::string to_text(const CounterReport& report, std::size_t most = 15);
// Returns {"refusal", "kernels": [{"op", "module", "phase", "ms", EVENT: count}]}.
[[nodiscard]] Json to_json(const CounterReport& report);

}  // namespace hone
