// Averages metrics between two log lines, and decides when log lines, evaluations and checkpoints are due.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tracker/metric_row.h"
#include "train/options.h"

namespace hone {

// Sums of metrics over the steps since the last log line.
struct MetricWindow {
  using Clock = std::chrono::steady_clock;

  Clock::time_point start = Clock::now();
  std::int64_t first_tokens = 0;
  double first_flops = 0;
  std::int64_t steps = 0;
  double grad_norm = 0;      // value of the last step
  double learning_rate = 0;  // value of the last step

  // Adds the value of a step; NaN is left out of the mean.
  void add(const std::string& name, double value) {
    if (std::isnan(value)) return;
    for (auto& [known, sum] : sums_) {
      if (known != name) continue;
      sum.first += value;
      ++sum.second;
      return;
    }
    sums_.emplace_back(name, std::pair(value, std::int64_t{1}));
  }
  void add_means_to(MetricRow& row) const {
    for (const auto& [name, sum] : sums_) row.set(name, sum.first / static_cast<double>(sum.second));
  }

 private:
  std::vector<std::pair<std::string, std::pair<double, std::int64_t>>> sums_;  // metric, (sum, number of values)
};

// Schedule of a repeated action.
struct Cadence {
  Interval strategy = Interval::kNo;
  std::int64_t every = 1;  // steps between actions for Interval::kSteps

  // Returns true if the action is due after `steps_done` steps.

  [[nodiscard]] bool due(std::int64_t steps_done, bool epoch_ended) const {
    return strategy == Interval::kSteps ? steps_done % every == 0 : strategy == Interval::kEpoch && epoch_ended;
  }
};

// Returns the interval of a save strategy; `best` has none, because it depends on evaluations only.
[[nodiscard]] inline Interval interval_of(SaveStrategy strategy) {
  if (strategy == SaveStrategy::kSteps) return Interval::kSteps;
  return strategy == SaveStrategy::kEpoch ? Interval::kEpoch : Interval::kNo;
}

}  // namespace hone
