#include "tracker/metric_row.h"

#include <algorithm>

namespace hone {

void MetricRow::set(std::string_view name, double value) {
  const auto at = std::ranges::find(values, name, &std::pair<std::string, double>::first);
  if (at != values.end()) {
    at->second = value;
  } else {
    values.emplace_back(name, value);
  }
}

std::optional<double> MetricRow::find(std::string_view name) const {
  const auto at = std::ranges::find(values, name, &std::pair<std::string, double>::first);
  return at == values.end() ? std::nullopt : std::optional<double>(at->second);
}

}  // namespace hone
