#include "eval/statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "core/error.h"

namespace hone {
namespace {

constexpr double kNormal95 = 1.959963984540054;  // 97.5% quantile of the normal distribution

double mean_of(std::span<const double> values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

}  // namespace

Estimate estimate_difference(std::span<const double> values) {
  HONE_ASSERT(!values.empty(), "a mean needs at least one value");
  Estimate estimate{.value = mean_of(values)};
  if (values.size() < 2) return estimate;
  double squares = 0.0;
  for (const double value : values) squares += (value - estimate.value) * (value - estimate.value);
  const auto count = static_cast<double>(values.size());
  estimate.standard_error = std::sqrt(squares / (count - 1.0) / count);
  estimate.low = estimate.value - kNormal95 * *estimate.standard_error;
  estimate.high = estimate.value + kNormal95 * *estimate.standard_error;
  return estimate;
}

Estimate estimate_mean(std::span<const double> values) {
  Estimate estimate = estimate_difference(values);
  if (estimate.low) estimate.low = std::max(0.0, *estimate.low);
  if (estimate.high) estimate.high = std::min(1.0, *estimate.high);
  return estimate;
}

Estimate average_score(std::span<const std::vector<double>> scores) {
  std::vector<double> means;
  for (const std::vector<double>& samples : scores) {
    HONE_ASSERT(!samples.empty(), "a problem has no samples");
    means.push_back(mean_of(samples));
  }
  return estimate_mean(means);
}

double pass_at_k(std::int64_t n, std::int64_t c, std::int64_t k) {
  HONE_ASSERT(k >= 1 && k <= n && c >= 0 && c <= n, "n ", n, ", c ", c, ", k ", k);
  if (n - c < k) return 1.0;
  double all_wrong = 1.0;
  for (std::int64_t i = n - c + 1; i <= n; ++i) all_wrong *= 1.0 - static_cast<double>(k) / static_cast<double>(i);
  return 1.0 - all_wrong;
}

Estimate pass_at_k(std::span<const std::vector<double>> scores, std::int64_t k) {
  std::vector<double> values;
  for (const std::vector<double>& samples : scores) {
    values.push_back(pass_at_k(std::ssize(samples), std::ranges::count(samples, 1.0), k));
  }
  return estimate_mean(values);
}

std::string percent_text(double share) {
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), "%.1f", 100.0 * share);
  return text.data();
}

}  // namespace hone
