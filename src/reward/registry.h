// The rewards that a recipe may name: one folder each, which registers itself and the keys that it reads.
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
  // Builds the function from the options; throws Error where an option makes no sense.
  using Maker = std::function<RewardFunction(const RewardOptions&)>;

  void add(std::string name, std::string metric_name, Maker make);
  // Declares keys of a recipe that a reward reads from RewardOptions::keys. Rewards that share a struct all declare it.
  void add_keys(const OptionSet& keys) { keys_.add(keys); }
  // Declares a file or a folder that a key names and that programs of completions must not be able to read.
  void hide(std::function<std::string(const OptionSet& keys)> path) { hidden_.push_back(std::move(path)); }

  [[nodiscard]] const OptionSet& keys() const { return keys_; }  // with their defaults
  [[nodiscard]] std::vector<std::string> hidden(const OptionSet& keys) const;
  [[nodiscard]] std::vector<std::string> names() const;  // sorted
  // Throws Error with the nearest known name.
  [[nodiscard]] Reward make(std::string_view name, const RewardOptions& options) const;

 private:
  struct Entry {
    std::string name;
    std::string metric_name;
    Maker make;
  };
  std::vector<Entry> entries_;  // sorted by name
  OptionSet keys_;
  std::vector<std::function<std::string(const OptionSet&)>> hidden_;
};

using RegistryOf_reward = RewardRegistry;

void register_all_reward(RewardRegistry& registry);  // generated

// The rewards of this process: at first hone's.
[[nodiscard]] RewardRegistry& reward_registry();

}  // namespace hone
