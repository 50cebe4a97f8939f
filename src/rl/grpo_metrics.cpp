#include "rl/grpo_metrics.h"

#include <algorithm>
#include <cmath>

namespace hone {
namespace {

void add_lengths(NamedValues& values, const std::string& infix, const std::vector<double>& lengths) {
  const auto name = [&](const char* which) { return "completions/" + std::string(which) + infix; };
  if (lengths.empty()) {
    for (const char* which : {"mean", "min", "max"}) values.emplace_back(name(which), 0.0);
    return;
  }
  const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
  values.emplace_back(name("mean"), mean_std(lengths).mean);
  values.emplace_back(name("min"), *least);
  values.emplace_back(name("max"), *most);
}

}  // namespace

NamedValues rollout_metrics(const Rollout& rollout, std::span<const Reward> rewards) {
  NamedValues values;
  values.emplace_back("reward", rollout.advantages.reward_mean);
  values.emplace_back("reward/total", rollout.advantages.reward_mean);
  values.emplace_back("reward_std", rollout.advantages.reward_std);
  values.emplace_back("frac_reward_zero_std", rollout.advantages.frac_reward_zero_std);
  for (std::size_t r = 0; r < rewards.size(); ++r) {
    std::vector<double> present;
    for (const auto& score : rollout.scores[r]) {
      if (score) present.push_back(*score);
    }
    const MeanStd stats = mean_std(present);
    values.emplace_back("rewards/" + rewards[r].metric_name + "/mean", stats.mean);
    values.emplace_back("rewards/" + rewards[r].metric_name + "/std", stats.std);
    values.emplace_back("reward/" + rewards[r].name, stats.mean);
  }
  std::vector<double> lengths;
  std::vector<double> terminated;
  for (const PolicySample& sample : rollout.samples) {
    lengths.push_back(static_cast<double>(sample.completion.size()));
    if (!sample.truncated) terminated.push_back(lengths.back());
  }
  add_lengths(values, "_length", lengths);
  add_lengths(values, "_terminated_length", terminated);
  values.emplace_back("completions/clipped_ratio",
                      1.0 - static_cast<double>(terminated.size()) / static_cast<double>(std::max<std::size_t>(lengths.size(), 1)));
  return values;
}

void PolicyMetrics::add(const PolicyBatch& batch, std::span<const float> logps, std::span<const float> entropies,
                        std::span<const float> kls) {
  double tokens = 0;
  double low = 0;
  double high = 0;
  for (std::size_t t = 0; t < batch.batch.tokens.size(); ++t) {
    if (batch.batch.targets[t] < 0) continue;
    const double difference = static_cast<double>(logps[t]) - static_cast<double>(batch.old_logps[t]);
    if (options_.compare) {
      const double ratio = std::exp(difference);
      difference_sum_ += std::abs(difference);
      difference_max_ = std::max(difference_max_, std::abs(difference));
      ratio_sum_ += ratio;
      ratio_min_ = compared_ == 0 ? ratio : std::min(ratio_min_, ratio);
      ratio_max_ = compared_ == 0 ? ratio : std::max(ratio_max_, ratio);
      ++compared_;
    }
    if (batch.weights[t] == 0) continue;
    ++tokens;
    entropy_ += static_cast<double>(entropies[t]);
    if (!kls.empty()) kl_ += static_cast<double>(kls[t]);
    if (!options_.old_logps) continue;
    const double ratio = std::exp(difference);
    const double advantage = static_cast<double>(batch.advantages[t]);
    if (ratio < 1 - options_.epsilon && advantage < 0) ++low;
    if (ratio > 1 + options_.epsilon_high && advantage > 0) ++high;
  }
  tokens_ += tokens;
  clipped_ += low + high;
  if (tokens == 0) return;
  low_clips_.push_back(low / tokens);
  high_clips_.push_back(high / tokens);
}

NamedValues PolicyMetrics::values() const {
  const double tokens = std::max(tokens_, 1.0);
  NamedValues values{{"entropy", entropy_ / tokens}};
  if (options_.beta != 0) {
    values.emplace_back("kl", kl_ / tokens);
    values.emplace_back("policy/kl", kl_ / tokens);
  }
  if (!low_clips_.empty()) {
    values.emplace_back("clip_ratio/low_mean", mean_std(low_clips_).mean);
    values.emplace_back("clip_ratio/low_min", *std::min_element(low_clips_.begin(), low_clips_.end()));
    values.emplace_back("clip_ratio/high_mean", mean_std(high_clips_).mean);
    values.emplace_back("clip_ratio/high_max", *std::max_element(high_clips_.begin(), high_clips_.end()));
    values.emplace_back("clip_ratio/region_mean", clipped_ / tokens);
  }
  if (compared_ > 0) {
    values.emplace_back("sampling/sampling_logp_difference/mean", difference_sum_ / compared_);
    values.emplace_back("sampling/sampling_logp_difference/max", difference_max_);
    values.emplace_back("sampling/importance_sampling_ratio/min", ratio_min_);
    values.emplace_back("sampling/importance_sampling_ratio/mean", ratio_sum_ / compared_);
    values.emplace_back("sampling/importance_sampling_ratio/max", ratio_max_);
  }
  return values;
}

}  // namespace hone
