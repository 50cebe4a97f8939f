#include "rl/advantages.h"

#include <cmath>

#include "core/error.h"

namespace hone {
namespace {

constexpr double kStdEpsilon = 1e-4;
constexpr double kZeroStd = 1e-8;  // as torch.isclose: the mean of equal totals may differ from them by rounding

// Returns the totals that exist.
std::vector<double> present(std::span<const std::optional<double>> totals) {
  std::vector<double> values;
  for (const auto& total : totals) {
    if (total) values.push_back(*total);
  }
  return values;
}

}  // namespace

std::vector<std::optional<double>> total_rewards(std::span<const RewardScores> scores,
                                                 std::span<const double> weights) {
  HONE_ASSERT(scores.size() == weights.size(), scores.size(), " rewards, ", weights.size(), " weights");
  std::vector<std::optional<double>> totals(scores.empty() ? 0 : scores[0].size());
  for (std::size_t reward = 0; reward < scores.size(); ++reward) {
    for (std::size_t i = 0; i < totals.size(); ++i) {
      const std::optional<double>& score = scores[reward][i];
      if (score) totals[i] = totals[i].value_or(0.0) + weights[reward] * *score;
    }
  }
  return totals;
}

MeanStd mean_std(std::span<const double> values) {
  MeanStd result;
  if (values.empty()) return result;
  const auto count = static_cast<double>(values.size());
  for (const double value : values) result.mean += value;
  result.mean /= count;
  if (values.size() < 2) return result;
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.std = std::sqrt(squares / (count - 1));
  return result;
}

Advantages compute_advantages(std::span<const std::optional<double>> totals, std::int64_t num_generations,
                              RewardScale scale) {
  const auto group_size = static_cast<std::size_t>(num_generations);
  HONE_ASSERT(group_size > 0 && totals.size() % group_size == 0, totals.size(), " completions in groups of ",
              group_size);
  Advantages result;
  result.values.assign(totals.size(), 0.0);
  const double batch_std = mean_std(present(totals)).std;
  const std::size_t group_count = totals.size() / group_size;
  const auto groups = static_cast<double>(group_count);
  std::vector<double> means;
  for (std::size_t begin = 0; begin < totals.size(); begin += group_size) {
    const auto group = totals.subspan(begin, group_size);
    const std::vector<double> values = present(group);
    const MeanStd stats = mean_std(values);
    if (!values.empty()) means.push_back(stats.mean);
    result.reward_std += stats.std / groups;
    if (stats.std <= kZeroStd) result.frac_reward_zero_std += 1.0 / groups;
    const double deviation = scale == RewardScale::kGroup ? stats.std : batch_std;
    for (std::size_t i = 0; i < group_size; ++i) {
      const std::optional<double>& total = group[i];
      if (!total) continue;
      const double centred = stats.std <= kZeroStd ? 0.0 : *total - stats.mean;
      result.values[begin + i] = scale == RewardScale::kNone ? centred : centred / (deviation + kStdEpsilon);
    }
  }
  result.reward_mean = mean_std(means).mean;
  return result;
}

}  // namespace hone
