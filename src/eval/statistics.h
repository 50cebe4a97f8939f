// Scores with their uncertainty.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace hone {

// A mean over problems. The problems are the independent draws: the samples of one problem form a cluster (Miller,
// "Adding error bars to evals", arXiv 2411.00640), so that the standard error is the sample deviation of the problems'
// values over the square root of their number. Absent with fewer than two problems.
struct Estimate {
  double value = 0.0;
  std::optional<double> standard_error;
  // The 95% interval: value +- 1.96 standard errors, cut to [0, 1]. Of zero width where all problems score alike.
  std::optional<double> low, high;
};

// `values`: one a problem, at least one.
[[nodiscard]] Estimate estimate_mean(std::span<const double> values);

// The same for differences in [-1, 1], the interval not cut.
[[nodiscard]] Estimate estimate_difference(std::span<const double> values);

// avg@n. `scores`: [problems][samples], each at least one, in [0, 1].
[[nodiscard]] Estimate average_score(std::span<const std::vector<double>> scores);

// The chance that at least one of k samples is right, drawn without replacement from n of which c are right:
// 1 - C(n-c, k)/C(n, k), unbiased (Chen et al., arXiv 2107.03374). 1 <= k <= n.
[[nodiscard]] double pass_at_k(std::int64_t n, std::int64_t c, std::int64_t k);
// The mean over problems; a sample is right where its score is 1. k is at most the samples of each problem.
[[nodiscard]] Estimate pass_at_k(std::span<const std::vector<double>> scores, std::int64_t k);

// A share as per cent with one decimal place and no sign: "45.3".
[[nodiscard]] std::string percent_text(double share);

}  // namespace hone
