// Metrics of a GRPO step under TRL's names.
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

// Returns the metrics of one generation: reward, reward_std, frac_reward_zero_std, rewards/NAME/{mean,std},
// completions/*, the aliases reward/total and reward/NAME, and rollout.importance. The mean of a reward without any
// score is NaN, as is the deviation of a reward with fewer than two scores.
[[nodiscard]] NamedValues rollout_metrics(const Rollout& rollout, std::span<const Reward> rewards);
// Returns the averages of these metrics over the generations of a step, NaN left out; empty without a generation.
[[nodiscard]] NamedValues rollout_metrics(std::span<const Rollout> rollouts, std::span<const Reward> rewards);
// Returns the seconds that the generations of a step took: step_time/generation, rewards, logprobs (of the trainer, to
// compare them with the sampler's) and reference (log-probabilities of the reference model). 0 without a generation.
[[nodiscard]] NamedValues rollout_times(std::span<const Rollout> rollouts);

// Accumulates the metrics of the policy loss over the batches of a step, each of per_device_train_batch_size
// completions.
class PolicyMetrics {
 public:
  explicit PolicyMetrics(const PolicyLossOptions& loss) : loss_(loss) {}

  // Adds one batch. logps, entropies and kls hold the trainer's values, [tokens] of the batch; kls may be empty.
  // Masked samples have weight 0 and count only in sampling/*. compare: true if the weights are still those that
  // sampled; otherwise sampling/* omits the batch.
  void add(const PolicyBatch& batch, std::span<const float> logps, std::span<const float> entropies,
           std::span<const float> kls, bool compare);
  // Adds the batches of the other ranks of a job.
  void add_ranks(const Job& job);
  // Returns entropy, kl and clip_ratio/* (cispo: cispo_clip_ratio): means over the unmasked tokens of each batch
  // (ratios of sequences: over its completions), averaged over the batches with unmasked tokens, and omitted if
  // there is none. clip_ratio's min and max are taken over devices, of which there is one, so they equal the mean.
  // sampling/* covers all tokens of the compared batches and is omitted if none was compared.
  [[nodiscard]] NamedValues values() const;
  // Returns sampling/sampling_logp_difference/max; 0 if nothing was compared.
  [[nodiscard]] double largest_difference() const { return comparison_.largest_difference(); }

 private:
  struct Means {
    double entropy = 0;
    double kl = 0;
    double low_clip = 0;
    double high_clip = 0;
  };
  // Counts the ratio of a token or sequence in sums if it is clipped. `difference` is the logarithm of the ratio.
  void add_ratio(Means& sums, double difference, double advantage) const;
  // Adds the shares of the batch's completions whose ratio is clipped.
  void add_sequences(Means& shares, const PolicyBatch& batch, std::span<const float> logps) const;

  PolicyLossOptions loss_;
  Means means_;  // summed over batches
  double micro_batches_ = 0;
  SamplingComparison comparison_;
};

}  // namespace hone
