// Registry of the rewards that a recipe may name. Each reward has a folder and registers itself and its recipe keys. To
// add a reward, create the folder src/reward/NAME with a NAME.cpp that defines `void register_NAME(RewardRegistry&)`;
// CMake generates the call. reward/format declares no keys, reward/cosine does.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reward/reward.h"

namespace hone {

class RewardRegistry {
 public:
  // Builds the function from the options; throws Error if an option is invalid.
  using Maker = std::function<RewardFunction(const RewardOptions&)>;

  void add(std::string name, std::string metric_name, RewardScope scope, Maker make);
  // Declares recipe keys that a reward reads from RewardOptions::keys. Rewards that share a struct all declare it.
  void add_keys(const OptionSet& keys) { keys_.add(keys); }
  // Declares a file or folder that a key names and that the programs in completions must not be able to read.
  void hide(std::function<std::string(const OptionSet& keys)> path) { hidden_.push_back(std::move(path)); }

  [[nodiscard]] const OptionSet& keys() const { return keys_; }                // with their default values
  [[nodiscard]] std::vector<std::string> hidden(const OptionSet& keys) const;  // paths declared with hide()
  [[nodiscard]] std::vector<std::string> names() const;                        // sorted
  // Builds a reward. Throws Error, suggesting the most similar name, if there is no reward of this name.
  [[nodiscard]] Reward make(std::string_view name, const RewardOptions& options) const;

 private:
  struct Entry {
    std::string name;
    std::string metric_name;
    RewardScope scope;
    Maker make;
  };
  std::vector<Entry> entries_;  // sorted by name
  OptionSet keys_;
  std::vector<std::function<std::string(const OptionSet&)>> hidden_;
};

using RegistryOf_reward = RewardRegistry;

void register_all_reward(RewardRegistry& registry);  // generated

// Returns the registry of this process, which initially contains the built-in rewards.
[[nodiscard]] RewardRegistry& reward_registry();

}  // namespace hone
