// Observers of the nodes of a run, for profiling: times of nodes, hardware counters.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backend/stopwatch.h"

namespace hone {

// Callbacks of Executable::run(). A run calls begin_run, then before_node and after_node for each node in order
// (including views, which launch nothing), then end_run. After an error no further callback follows. The host does not
// wait for the device before any of them. The stopwatch is one of the device, the same object in all callbacks of a run
// and without marks at its beginning; the observer decides where to set marks.
class NodeObserver {
 public:
  virtual ~NodeObserver() = default;
  virtual void begin_run(Stopwatch& stopwatch) { (void)stopwatch; }
  virtual void before_node(std::size_t node, Stopwatch& stopwatch) {
    (void)node;
    (void)stopwatch;
  }
  virtual void after_node(std::size_t node, Stopwatch& stopwatch) {
    (void)node;
    (void)stopwatch;
  }
  virtual void end_run(Stopwatch& stopwatch) { (void)stopwatch; }
};

// Sums the time that the device spends on each node, measured from the end of the previous node.
class NodeTimes final : public NodeObserver {
 public:
  // [nodes], seconds of all runs since clear(); empty before the first run.
  [[nodiscard]] std::span<const double> seconds() const { return seconds_; }
  void clear() { seconds_.clear(); }

  void begin_run(Stopwatch& stopwatch) override { stopwatch.mark(); }
  void after_node(std::size_t node, Stopwatch& stopwatch) override;
  void end_run(Stopwatch& stopwatch) override;

 private:
  std::vector<double> seconds_;
};

}  // namespace hone
