// The figures of a GRPO step, by TRL's names.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rl/importance.h"
#include "rl/policy_program.h"
#include "rl/rollout.h"

namespace hone {

using NamedValues = std::vector<std::pair<std::string, double>>;

// reward, reward_std, frac_reward_zero_std, rewards/NAME/{mean,std}, completions/*; the aliases reward/total and
// reward/NAME; rollout.importance. NaN: the mean of a reward without any opinion, the deviation of one with less than
// two.
[[nodiscard]] NamedValues rollout_metrics(const Rollout& rollout, std::span<const Reward> rewards);
// Their averages over a step's generations, NaN left out; empty without one.
[[nodiscard]] NamedValues rollout_metrics(std::span<const Rollout> rollouts, std::span<const Reward> rewards);

// What the micro-batches of a step tell, token by token.
class PolicyMetrics {
 public:
  explicit PolicyMetrics(const PolicyLossOptions& loss) : loss_(loss) {}

  // One micro-batch: log p and entropy of the trainer by row of the batch; kl may be empty. Masked samples have weight
  // 0: they count in sampling/* alone. compare: whether the policy is still the one that sampled; else sampling/*
  // leaves the micro-batch out.
  void add(const PolicyBatch& batch, std::span<const float> logps, std::span<const float> entropies,
           std::span<const float> kls, bool compare);
  // entropy, kl, clip_ratio/* (cispo: cispo_clip_ratio): means over a micro-batch's unmasked tokens (ratios of
  // sequences: over its completions), averaged over the micro-batches that have any; none where no micro-batch has.
  // clip_ratio's min and max are over devices, here one. sampling/*: over all tokens of the step.
  [[nodiscard]] NamedValues values() const;

 private:
  struct Means {
    double entropy = 0;
    double kl = 0;
    double low_clip = 0;
    double high_clip = 0;
  };
  // Adds one ratio, of a token or of a sequence, to the clipped ones; `difference`: its logarithm.
  void add_ratio(Means& sums, double difference, double advantage) const;
  // Adds the ratios of a micro-batch's completions, as shares of their number.
  void add_sequences(Means& shares, const PolicyBatch& batch, std::span<const float> logps) const;

  PolicyLossOptions loss_;
  Means means_;  // summed over micro-batches
  double micro_batches_ = 0;
  SamplingComparison comparison_;
};

}  // namespace hone
