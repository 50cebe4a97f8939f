// The rewards that a recipe may name: one folder each, which registers itself.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "reward/reward.h"

namespace hone {

class RewardRegistry {
 public:
  // Builds the function from the options; throws Error where an option makes no sense.
  using Maker = std::function<RewardFunction(const RewardOptions&)>;

  void add(std::string name, std::string metric_name, Maker make);

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
};

using RegistryOf_reward = RewardRegistry;

void register_all_reward(RewardRegistry& registry);

}  // namespace hone
