// The update rules that have a folder of their own in this room.
#pragma once

#include <utility>
#include <vector>

#include "train/update_rule.h"

namespace hone {

class UpdateRuleRegistry {
 public:
  void add(WeightKind kind, const OwnUpdateRule& rule);            // lives as long as the registry
  [[nodiscard]] const OwnUpdateRule* find(WeightKind kind) const;  // null where the run's optimizer moves it

 private:
  std::vector<std::pair<WeightKind, const OwnUpdateRule*>> rules_;
};

using RegistryOf_train = UpdateRuleRegistry;
void register_all_train(UpdateRuleRegistry& registry);  // generated

// The rules of hone.
[[nodiscard]] UpdateRuleRegistry& own_update_rules();

}  // namespace hone
