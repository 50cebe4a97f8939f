#include "reward/registry.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/strings.h"

namespace hone {

RewardFunction each(std::function<std::optional<double>(const RewardInput&)> judge) {
  return [judge = std::move(judge)](std::span<const RewardInput> batch) {
    RewardScores scores;
    scores.reserve(batch.size());
    for (const RewardInput& input : batch) scores.push_back(judge(input));
    return scores;
  };
}

void RewardRegistry::add(std::string name, std::string metric_name, RewardScope scope, Maker make) {
  const auto place = std::ranges::lower_bound(entries_, name, {}, &Entry::name);
  HONE_ASSERT(place == entries_.end() || place->name != name, "reward ", name, " is registered twice");
  entries_.insert(place, {std::move(name), std::move(metric_name), scope, std::move(make)});
}

std::vector<std::string> RewardRegistry::names() const {
  std::vector<std::string> names;
  names.reserve(entries_.size());
  for (const Entry& entry : entries_) names.push_back(entry.name);
  return names;
}

std::vector<std::string> RewardRegistry::hidden(const OptionSet& keys) const {
  std::vector<std::string> paths;
  paths.reserve(hidden_.size());
  for (const auto& path : hidden_) paths.push_back(path(keys));
  return paths;
}

RewardRegistry& reward_registry() {
  static RewardRegistry registry = [] {
    RewardRegistry filled;
    register_all_reward(filled);
    return filled;
  }();
  return registry;
}

OptionSet reward_keys() { return reward_registry().keys(); }

Reward RewardRegistry::make(std::string_view name, const RewardOptions& options) const {
  const auto place = std::ranges::lower_bound(entries_, name, {}, &Entry::name);
  if (place == entries_.end() || place->name != name) {
    const std::vector<std::string> known = names();
    const std::string nearest = nearest_name(name, known);
    throw Error("reward_funcs", text_of("no reward is called '", name, "'"),
                nearest.empty() ? "known: " + join(known, ", ") : "did you mean '" + nearest + "'?");
  }
  return {place->name, place->metric_name, place->make(options), place->scope};
}

}  // namespace hone
