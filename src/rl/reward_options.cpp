#include "rl/reward_options.h"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <utility>

#include "data/mixture.h"
#include "reward/registry.h"
#include "reward/user/user_reward.h"
#include "rl/reward_rows.h"

namespace hone {

RewardOptions reward_options(const RewardKeys& keys, bool think_prefilled) {
  return {.keys = keys.keys_of_rewards,
          .think_prefilled = think_prefilled,
          .sandbox = keys.sandbox,
          .hidden = {},
          .rows = visit_rows};
}

std::vector<Reward> rewards_of(const RewardKeys& keys, bool think_prefilled, std::vector<std::string> hidden) {
  const RewardRegistry& registry = reward_registry();
  RewardOptions options = reward_options(keys, think_prefilled);
  options.hidden = std::move(hidden);
  for (std::string& path : registry.hidden(options.keys)) options.hidden.push_back(std::move(path));
  const std::chrono::milliseconds limit(static_cast<std::int64_t>(std::ceil(keys.reward_timeout * 1000)));
  std::vector<Reward> rewards;
  rewards.reserve(keys.reward_funcs.size());
  for (const std::string& name : keys.reward_funcs) {
    rewards.push_back(is_user_reward(name) ? make_user_reward(name, limit) : registry.make(name, options));
  }
  return rewards;
}

std::vector<std::string> hidden_paths(const GrpoOptions& options) {
  std::vector<std::string> paths = {options.dataset_name, options.eval_dataset_name, options.output_dir};
  if (options.dataset_mixture.kind != YamlValue::Kind::kNull) {
    for (const MixtureDataset& one : read_mixture(options.dataset_mixture, "dataset_mixture").datasets) {
      paths.push_back(one.id);
    }
  }
  return paths;
}

}  // namespace hone
