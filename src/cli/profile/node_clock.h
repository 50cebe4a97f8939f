// Times of the nodes of one run: how long the device worked on each, and when the host launched it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "program/node_observer.h"

namespace hone {

// A part of the host's time, in seconds since the origin of the steady clock.
struct HostSpan {
  double begin = 0;
  double seconds = 0;
};

// Returns the current time of that clock.
[[nodiscard]] double host_seconds();

// Observes one run at a time; a new run replaces the times of the one before.
class NodeClock final : public NodeObserver {
 public:
  [[nodiscard]] std::span<const double> seconds() const { return times_.seconds(); }  // [nodes], of the device
  [[nodiscard]] std::span<const HostSpan> launches() const { return launches_; }      // [nodes]

  void begin_run(Stopwatch& stopwatch) override;
  void before_node(std::size_t node, Stopwatch& stopwatch) override;
  void after_node(std::size_t node, Stopwatch& stopwatch) override;
  void end_run(Stopwatch& stopwatch) override { times_.end_run(stopwatch); }

 private:
  NodeTimes times_;
  std::vector<HostSpan> launches_;
};

}  // namespace hone
