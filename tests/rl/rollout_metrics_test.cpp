// Advantages and metrics of a rollout, compared with those of TRL computed by torch in float64 (make_grpo.py).
#include <gtest/gtest.h>

#include <cmath>

#include "core/json_value.h"
#include "rl/grpo_metrics.h"
#include "support/paths.h"

namespace hone::test {
namespace {

constexpr std::int64_t kGroup = 3;

RewardScale scale_of(const Json& json) {
  const auto name = json.get<std::string>();
  return name == "group" ? RewardScale::kGroup : name == "batch" ? RewardScale::kBatch : RewardScale::kNone;
}

std::vector<RewardScores> scores_of(const Json& json) {
  std::vector<RewardScores> scores;
  for (const Json& reward : json) {
    RewardScores& of_reward = scores.emplace_back();
    for (const Json& score : reward) {
      of_reward.push_back(score.is_null() ? std::nullopt : std::optional(score.get<double>()));
    }
  }
  return scores;
}

std::vector<Reward> rewards() {
  return {{"first", "first_reward", {}}, {"second", "second_reward", {}}, {"third", "third_reward", {}}};
}

Rollout rollout_of(const Json& json) {
  Rollout rollout;
  rollout.scores = scores_of(json.at("scores"));
  const auto totals = total_rewards(rollout.scores, json.at("weights").get<std::vector<double>>());
  rollout.advantages = compute_advantages(totals, kGroup, scale_of(json.at("scale")));
  const auto lengths = json.at("lengths").get<std::vector<std::size_t>>();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    PolicySample sample{.prompt = {1}, .completion = std::vector<TokenId>(lengths[i], 2)};
    sample.truncated = json.at("truncated")[i].get<bool>();
    rollout.samples.push_back(std::move(sample));
  }
  return rollout;
}

double metric_named(const NamedValues& values, const std::string& name) {
  for (const auto& [known, value] : values) {
    if (known == name) return value;
  }
  ADD_FAILURE() << "there is no metric " << name;
  return 0;
}

void expect_near(double value, const Json& wanted, const std::string& where) {
  if (wanted.is_null()) {
    EXPECT_TRUE(std::isnan(value)) << where << " is " << value;
    return;
  }
  EXPECT_NEAR(value, wanted.get<double>(), 1e-6 * std::max(std::abs(wanted.get<double>()), 1e-3)) << where;
}

TEST(Rollout, AdvantagesAreThoseOfTheReference) {
  const Json file = read_json(fixture("rl/grpo.json"));
  ASSERT_GE(file.at("rollouts").size(), 12u);
  for (const Json& json : file.at("rollouts")) {
    const Rollout rollout = rollout_of(json);
    const Json& wanted = json.at("advantages");
    ASSERT_EQ(rollout.advantages.values.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      expect_near(rollout.advantages.values[i], wanted[i],
                  json.at("name").get<std::string>() + ", completion " + std::to_string(i));
    }
  }
}

TEST(Rollout, MetricsAreThoseOfTheReference) {
  const Json file = read_json(fixture("rl/grpo.json"));
  for (const Json& json : file.at("rollouts")) {
    const NamedValues values = rollout_metrics(rollout_of(json), rewards());
    for (const auto& [name, wanted] : json.at("metrics").items()) {
      expect_near(metric_named(values, name), wanted, json.at("name").get<std::string>() + ", " + name);
    }
    EXPECT_EQ(metric_named(values, "reward/total"), metric_named(values, "reward"));
    EXPECT_EQ(metric_named(values, "reward/first"), metric_named(values, "rewards/first_reward/mean"));
  }
}

TEST(Rollout, WhatNobodyJudgesHasNoTotalAndNoAdvantage) {
  const std::vector<RewardScores> scores{{1.0, std::nullopt, std::nullopt}, {std::nullopt, std::nullopt, 4.0}};
  const std::vector<double> weights{2.0, 0.5};
  const auto totals = total_rewards(scores, weights);
  EXPECT_EQ(totals, (std::vector<std::optional<double>>{2.0, std::nullopt, 2.0}));
  const Advantages advantages = compute_advantages(totals, 3, RewardScale::kGroup);
  EXPECT_EQ(advantages.values, (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(advantages.reward_mean, 2.0);
  EXPECT_EQ(advantages.frac_reward_zero_std, 1.0);
  const std::vector<std::optional<double>> none(3);
  EXPECT_EQ(compute_advantages(none, 3, RewardScale::kBatch).values, (std::vector<double>{0, 0, 0}));
}

TEST(Rollout, MetricsOfAStepAreTheMeanOverItsGenerations) {
  const Json file = read_json(fixture("rl/grpo.json"));
  const std::vector<Rollout> both{rollout_of(file.at("rollouts")[0]), rollout_of(file.at("rollouts")[9])};
  const NamedValues first = rollout_metrics(both[0], rewards());
  const NamedValues second = rollout_metrics(both[1], rewards());
  const NamedValues mean = rollout_metrics(both, rewards());
  EXPECT_DOUBLE_EQ(metric_named(mean, "reward"), (metric_named(first, "reward") + metric_named(second, "reward")) / 2);
  // The second generation has no score of this reward.
  ASSERT_TRUE(std::isnan(metric_named(second, "rewards/second_reward/mean")));
  EXPECT_EQ(metric_named(mean, "rewards/second_reward/mean"), metric_named(first, "rewards/second_reward/mean"));
  EXPECT_TRUE(rollout_metrics(std::span<const Rollout>(), rewards()).empty());
}

}  // namespace
}  // namespace hone::test
