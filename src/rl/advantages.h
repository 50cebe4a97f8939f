// Computes the advantages of completions from their rewards (Shao et al., "DeepSeekMath", 2024; as TRL does).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reward/reward.h"
#include "rl/options.h"

namespace hone {

// Returns the weighted sum of each completion's rewards, [completions]. A reward without a score adds nothing; a
// completion without any score has no total. scores: [rewards][completions]; weights: [rewards].
[[nodiscard]] std::vector<std::optional<double>> total_rewards(std::span<const RewardScores> scores,
                                                               std::span<const double> weights);

struct Advantages {
  std::vector<double> values;       // [completions]; 0 for a completion without a total
  double reward_mean = 0;           // mean of the group means, over groups with at least one total
  double reward_std = 0;            // mean of the group deviations; 0 for a group with fewer than two totals
  double frac_reward_zero_std = 0;  // share of groups whose deviation is 0 up to rounding
};

// Computes (total - mean of the group) / (deviation + 1e-4) for each completion, with n - 1 in deviations. Groups are
// consecutive, so totals.size() is a multiple of num_generations. The deviation is that of the group
// (RewardScale::kGroup) or of all totals (batch); RewardScale::kNone does not divide. Advantages in a group whose
// totals are equal up to rounding are exactly 0.
[[nodiscard]] Advantages compute_advantages(std::span<const std::optional<double>> totals, std::int64_t num_generations,
                                            RewardScale scale);

struct MeanStd {
  double mean = 0;
  double std = 0;  // with n - 1; 0 for fewer than two values
};
// Returns the mean and the standard deviation; both are 0 for an empty span.
[[nodiscard]] MeanStd mean_std(std::span<const double> values);

}  // namespace hone
