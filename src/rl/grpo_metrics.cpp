#include "rl/grpo_metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace hone {
namespace {

// Adds completions/{mean,min,max}INFIX; 0 if there are no lengths, as in TRL.
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
    MeanStd stats = mean_std(present);
    if (present.empty()) stats.mean = std::numeric_limits<double>::quiet_NaN();
    if (present.size() < 2) stats.std = std::numeric_limits<double>::quiet_NaN();
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
  values.emplace_back(
      "completions/clipped_ratio",
      1.0 - static_cast<double>(terminated.size()) / static_cast<double>(std::max<std::size_t>(lengths.size(), 1)));
  values.insert(values.end(), rollout.importance.begin(), rollout.importance.end());
  return values;
}

NamedValues rollout_metrics(std::span<const Rollout> rollouts, std::span<const Reward> rewards) {
  std::vector<NamedValues> all;
  for (const Rollout& rollout : rollouts) all.push_back(rollout_metrics(rollout, rewards));
  if (all.empty()) return {};
  NamedValues means = all[0];
  for (std::size_t i = 0; i < means.size(); ++i) {
    double sum = 0;
    double count = 0;
    for (const NamedValues& values : all) {
      if (std::isnan(values[i].second)) continue;
      sum += values[i].second;
      ++count;
    }
    means[i].second = sum / count;
  }
  return means;
}

NamedValues rollout_times(std::span<const Rollout> rollouts) {
  NamedValues times{{"step_time/generation", 0.0},
                    {"step_time/rewards", 0.0},
                    {"step_time/logprobs", 0.0},
                    {"step_time/reference", 0.0}};
  for (const Rollout& rollout : rollouts) {
    times[0].second += rollout.generation_seconds;
    times[1].second += rollout.reward_seconds;
    times[2].second += rollout.logprob_seconds;
    times[3].second += rollout.reference_seconds;
  }
  return times;
}

void PolicyMetrics::add_ratio(Means& sums, double difference, double advantage) const {
  double ratio = loss_.old_logps ? std::exp(difference) : 1.0;
  if (loss_.delta > 0) ratio = std::min(ratio, loss_.delta);
  if (!loss_.cispo && ratio < 1 - loss_.epsilon && advantage < 0) ++sums.low_clip;
  if (ratio > (loss_.cispo ? 0 : 1) + loss_.epsilon_high && advantage > 0) ++sums.high_clip;
}

void PolicyMetrics::add_sequences(Means& shares, const PolicyBatch& batch, std::span<const float> logps) const {
  const std::span<const std::int32_t> ends = batch.batch.cu_seqlens;
  Means sums;
  for (std::size_t s = 0; s + 1 < ends.size(); ++s) {
    double difference = 0;
    double advantage = 0;
    double tokens = 0;
    // The advantage is the same for all tokens of a completion.
    for (auto t = static_cast<std::size_t>(ends[s]); t < static_cast<std::size_t>(ends[s + 1]); ++t) {
      if (batch.batch.targets[t] < 0 || batch.weights[t] == 0) continue;
      difference += static_cast<double>(logps[t]) - static_cast<double>(batch.old_logps[t]);
      advantage = static_cast<double>(batch.advantages[t]);
      ++tokens;
    }
    add_ratio(sums, difference / std::max(tokens, 1.0), advantage);
  }
  const auto sequences = static_cast<double>(ends.size() - 1);
  shares.low_clip += sums.low_clip / sequences;
  shares.high_clip += sums.high_clip / sequences;
}

void PolicyMetrics::add(const PolicyBatch& batch, std::span<const float> logps, std::span<const float> entropies,
                        std::span<const float> kls, bool compare) {
  const bool of_tokens = loss_.level == ImportanceLevel::kToken;
  Means sums;
  double tokens = 0;
  for (std::size_t t = 0; t < batch.batch.tokens.size(); ++t) {
    if (batch.batch.targets[t] < 0) continue;
    const double difference = static_cast<double>(logps[t]) - static_cast<double>(batch.old_logps[t]);
    if (compare) {
      comparison_.add_difference(difference);
      comparison_.add_ratio(std::exp(difference));
    }
    if (batch.weights[t] == 0) continue;
    ++tokens;
    sums.entropy += static_cast<double>(entropies[t]);
    if (!kls.empty()) sums.kl += static_cast<double>(kls[t]);
    if (of_tokens) add_ratio(sums, difference, static_cast<double>(batch.advantages[t]));
  }
  if (tokens == 0) return;
  means_.entropy += sums.entropy / tokens;
  means_.kl += sums.kl / tokens;
  means_.low_clip += sums.low_clip / tokens;
  means_.high_clip += sums.high_clip / tokens;
  if (!of_tokens) add_sequences(means_, batch, logps);
  ++micro_batches_;
}

void PolicyMetrics::add_ranks(const Job& job) {
  if (job.size() == 1) return;
  std::array<double, 5> sums{means_.entropy, means_.kl, means_.low_clip, means_.high_clip, micro_batches_};
  job.sum(sums);
  means_ = {.entropy = sums[0], .kl = sums[1], .low_clip = sums[2], .high_clip = sums[3]};
  micro_batches_ = sums[4];
  comparison_.add_ranks(job);
}

NamedValues PolicyMetrics::values() const {
  NamedValues values;
  if (micro_batches_ > 0) {
    values.emplace_back("entropy", means_.entropy / micro_batches_);
    if (loss_.beta != 0) {
      values.emplace_back("kl", means_.kl / micro_batches_);
      values.emplace_back("policy/kl", means_.kl / micro_batches_);
    }
    const double low = means_.low_clip / micro_batches_;
    const double high = means_.high_clip / micro_batches_;
    if (loss_.cispo) {
      values.emplace_back("cispo_clip_ratio", high);
    } else {
      values.emplace_back("clip_ratio/low_mean", low);
      values.emplace_back("clip_ratio/low_min", low);
      values.emplace_back("clip_ratio/high_mean", high);
      values.emplace_back("clip_ratio/high_max", high);
      values.emplace_back("clip_ratio/region_mean", low + high);
    }
  }
  if (comparison_.has_ratios()) {
    const NamedValues compared = comparison_.values();
    values.insert(values.end(), compared.begin(), compared.end());
  }
  return values;
}

}  // namespace hone
