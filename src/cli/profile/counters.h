// Sums hardware events by operation: those of the processor, and those of the kernels that a GPU runs.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/profile/report.h"
#include "core/json.h"
#include "program/node_observer.h"
#include "system/event_counters.h"

namespace hone {

// Observes one run at a time on a CPU, like NodeClock. Create it after the threads of the process have been started.
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

// Events of one operation of a module and phase, or of one kernel of a GPU.
struct CountedKernel {
  std::string op;  // of an operation its name, of a kernel that of its function
  std::string module;
  std::string_view phase;
  double runs = 0;  // of an operation or launches of a kernel
  double seconds = 0;
  std::vector<double> counts;  // [names]
};

struct CounterReport {
  std::vector<std::string_view> names;       // EventCounters::names() or GpuCounters::names()
  std::string refusal;                       // one line that says what was not counted, and why
  std::string_view of = "step";              // what the numbers are sums of
  std::vector<CountedKernel> kernels = {};   // operations, slowest first
  std::vector<CountedKernel> launched = {};  // kernels of a GPU, slowest first
};

// Sums the counts of runs of the timeline's nodes, per step.
struct CountedRun {
  std::size_t node = 0;        // index of Timeline::nodes
  std::vector<double> counts;  // [events + 1]; the last column is seconds
};
[[nodiscard]] std::vector<CountedKernel> counted_operations(std::size_t events, const Timeline& timeline,
                                                            std::span<const CountedRun> runs);
[[nodiscard]] CounterReport counter_report(const NodeCounters& counters, const Timeline& timeline,
                                           std::span<const CountedRun> runs);

// Returns a table of the `most` slowest operations and one of kernels, after the line of what is not counted.
[[nodiscard]] std::string to_text(const CounterReport& report, std::size_t most = 15);
// Returns {"refusal", "of", "kernels": [{"op", "module", "phase", "runs", "ms", EVENT: count, FIGURE: value}],
// "launched": [{"kernel", "runs", "ms", ...}]}.
[[nodiscard]] Json to_json(const CounterReport& report);

}  // namespace hone
