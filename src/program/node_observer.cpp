#include "program/node_observer.h"

#include <algorithm>

namespace hone {

void NodeTimes::after_node(std::size_t, Stopwatch& stopwatch) { stopwatch.mark(); }

void NodeTimes::end_run(Stopwatch& stopwatch) {
  const std::vector<double> run = stopwatch.read();
  seconds_.resize(std::max(seconds_.size(), run.size()));
  for (std::size_t node = 0; node < run.size(); ++node) seconds_[node] += run[node];
}

}  // namespace hone
