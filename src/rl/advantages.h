// From rewards to advantages (Shao et al., "DeepSeekMath", 2024; as TRL computes them).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reward/reward.h"
#include "rl/options.h"

namespace hone {

// The weighted sum of a completion's rewards; a reward without an opinion adds nothing, and where all have none neither
// has the sum. scores: [rewards][completions].
[[nodiscard]] std::vector<std::optional<double>> total_rewards(std::span<const RewardScores> scores,
                                                               std::span<const double> weights);

struct Advantages {
  std::vector<double> values;       // by completion; 0 where there is no total
  double reward_mean = 0;           // mean of the groups' means, over groups with a total
  double reward_std = 0;            // mean of the groups' deviations, 0 of a group with less than two totals
  double frac_reward_zero_std = 0;  // share of the groups whose deviation is 0 but for rounding
};

// Completions of a group are neighbours: totals.size() is a multiple of num_generations. (r - group mean) / (deviation
// + 1e-4), deviations with n - 1; RewardScale::batch takes the deviation over all totals, none takes none.
[[nodiscard]] Advantages compute_advantages(std::span<const std::optional<double>> totals, std::int64_t num_generations,
                                            RewardScale scale);

struct MeanStd {
  double mean = 0;
  double std = 0;  // with n - 1; 0 for one value
};
[[nodiscard]] MeanStd mean_std(std::span<const double> values);

}  // namespace hone
