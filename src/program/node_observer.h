// Who is told of every node of a run: times, counters of the hardware.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "backend/stopwatch.h"

namespace hone {

// The calls of one run are begin_run, then before_node and after_node of each node in order (views too, which launch
// nothing), then end_run; after an error none follows. At none of them has the device been waited for. The stopwatch is
// the device's, the same in all calls of a run and without marks at its begin; what is marked is the observer's choice.
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

// Adds up the seconds that the device spends on each node, from the end of the node before it.
class NodeTimes final : public NodeObserver {
 public:
  // By node, of all runs since clear(); empty where there was none.
  [[nodiscard]] std::span<const double> seconds() const { return seconds_; }
  void clear() { seconds_.clear(); }

  void begin_run(Stopwatch& stopwatch) override { stopwatch.mark(); }
  void after_node(std::size_t node, Stopwatch& stopwatch) override;
  void end_run(Stopwatch& stopwatch) override;

 private:
  std::vector<double> seconds_;
};

}  // namespace hone
