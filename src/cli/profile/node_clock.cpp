#include "cli/profile/node_clock.h"

#include <chrono>

namespace hone {

double host_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void NodeClock::begin_run(Stopwatch& stopwatch) {
  times_.clear();
  launches_.clear();
  times_.begin_run(stopwatch);
}

void NodeClock::before_node(std::size_t, Stopwatch&) { launches_.push_back({.begin = host_seconds(), .seconds = 0}); }

void NodeClock::after_node(std::size_t node, Stopwatch& stopwatch) {
  launches_.back().seconds = host_seconds() - launches_.back().begin;
  times_.after_node(node, stopwatch);
}

}  // namespace hone
