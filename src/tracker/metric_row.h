// The metrics of one logged step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hone {

// Metrics by name, in the order in which they were set. NaN: could not be measured.
using MetricValues = std::vector<std::pair<std::string, double>>;

// The values of one logged step.
struct MetricRow {
  std::int64_t step = 0;
  MetricValues values;

  // Sets or replaces a value.
  void set(std::string_view name, double value);
  [[nodiscard]] std::optional<double> find(std::string_view name) const;
};

}  // namespace hone
