// Registry of update rules for kinds of weights that no optimizer option covers. Each rule has a folder in src/train.
#pragma once

#include <utility>
#include <vector>

#include "train/update_rule.h"

namespace hone {

class UpdateRuleRegistry {
 public:
  // Adds the rule of a kind, which must not have one yet. The rule must outlive the registry.
  void add(WeightKind kind, const WeightUpdateRule& rule);
  // Returns the rule of a kind, or null if the optimizer of the run updates it.
  [[nodiscard]] const WeightUpdateRule* find(WeightKind kind) const;

 private:
  std::vector<std::pair<WeightKind, const WeightUpdateRule*>> rules_;
};

using RegistryOf_train = UpdateRuleRegistry;
void register_all_train(UpdateRuleRegistry& registry);  // generated

// Returns the registry with all rules of hone.
[[nodiscard]] UpdateRuleRegistry& update_rule_registry();

}  // namespace hone
