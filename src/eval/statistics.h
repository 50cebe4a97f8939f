// Estimates scores and their uncertainty.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hone {

// Mean over problems with its standard error. Problems are independent draws and the samples of one problem form a
// cluster (Miller, "Adding error bars to evals", arXiv 2411.00640). The standard error is therefore the sample standard
// deviation of the problems' values divided by the square root of their number. It is absent with fewer than two
// problems.
struct Estimate {
  double value = 0.0;
  std::optional<double> standard_error;
  // 95% interval: value +- 1.96 standard errors, clamped to [0, 1]. Its width is zero if all problems score the same.
  std::optional<double> low, high;
};

// `values` is [problems], with at least one problem.
[[nodiscard]] Estimate estimate_mean(std::span<const double> values);

// Like estimate_mean(), for differences in [-1, 1]; the interval is not clamped.
[[nodiscard]] Estimate estimate_difference(std::span<const double> values);

// Computes avg@n. `scores` is [problems][samples], in [0, 1], with at least one sample of at least one problem.
[[nodiscard]] Estimate average_score(std::span<const std::vector<double>> scores);

// Returns the probability that at least one of k samples is correct, if they are drawn without replacement from n
// samples of which c are correct: 1 - C(n-c, k) / C(n, k), an unbiased estimate (Chen et al., arXiv 2107.03374).
// Requires 1 <= k <= n.
[[nodiscard]] double pass_at_k(std::int64_t n, std::int64_t c, std::int64_t k);
// Returns the mean of pass@k over problems. A sample is correct if its score is 1. Every problem needs at least k
// samples.
[[nodiscard]] Estimate pass_at_k(std::span<const std::vector<double>> scores, std::int64_t k);

// Formats a fraction as a percentage with one decimal place and without a sign: "45.3".
[[nodiscard]] std::string percent_text(double share);

}  // namespace hone
