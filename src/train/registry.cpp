#include "train/registry.h"

#include <algorithm>

#include "core/error.h"

namespace hone {

void UpdateRuleRegistry::add(WeightKind kind, const WeightUpdateRule& rule) {
  HONE_ASSERT(kind.is_set() && find(kind) == nullptr, "a kind of weight has two rules");
  rules_.emplace_back(kind, &rule);
}

const WeightUpdateRule* UpdateRuleRegistry::find(WeightKind kind) const {
  const auto found = std::ranges::find(rules_, kind, &std::pair<WeightKind, const WeightUpdateRule*>::first);
  return found == rules_.end() ? nullptr : found->second;
}

UpdateRuleRegistry& update_rule_registry() {
  static UpdateRuleRegistry registry = [] {
    UpdateRuleRegistry all;
    register_all_train(all);
    return all;
  }();
  return registry;
}

}  // namespace hone
