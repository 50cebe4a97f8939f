// The figures of a GRPO step, by TRL's names.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rl/rollout.h"

namespace hone {

using NamedValues = std::vector<std::pair<std::string, double>>;

// reward, reward_std, frac_reward_zero_std, rewards/NAME/{mean,std}, completions/*; the aliases reward/total and
// reward/NAME.
[[nodiscard]] NamedValues rollout_metrics(const Rollout& rollout, std::span<const Reward> rewards);

// What the micro-batches of a step tell, token by token.
class PolicyMetrics {
 public:
  struct Options {
    double epsilon = 0.2;
    double epsilon_high = 0.2;
    double beta = 0;
    bool old_logps = false;  // otherwise the ratio is 1
    bool compare = true;     // whether the policy is still the one that sampled
  };
  explicit PolicyMetrics(const Options& options) : options_(options) {}

  // One micro-batch: log p and entropy of the trainer by row of the batch; kl may be empty. Masked samples have weight 0.
  void add(const PolicyBatch& batch, std::span<const float> logps, std::span<const float> entropies,
           std::span<const float> kls);
  // entropy, kl, clip_ratio/*, sampling/*, each a mean over the step's unmasked tokens.
  [[nodiscard]] NamedValues values() const;

 private:
  Options options_;
  double tokens_ = 0;
  double entropy_ = 0;
  double kl_ = 0;
  double difference_sum_ = 0;
  double difference_max_ = 0;
  double ratio_sum_ = 0;
  double ratio_min_ = 0;
  double ratio_max_ = 0;
  double compared_ = 0;
  std::vector<double> low_clips_;   // by micro-batch, a share of its tokens
  std::vector<double> high_clips_;
  double clipped_ = 0;
};

}  // namespace hone
