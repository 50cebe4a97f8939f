#include "eval/registry.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/strings.h"

namespace hone {

void TaskRegistry::add(std::string name, Maker make, std::vector<std::string> aliases) {
  const auto place = std::ranges::lower_bound(entries_, name, {}, &Entry::name);
  HONE_ASSERT(place == entries_.end() || place->name != name, "task ", name, " is registered twice");
  entries_.insert(place, {std::move(name), std::move(make), std::move(aliases)});
}

std::vector<std::string> TaskRegistry::names() const {
  std::vector<std::string> names;
  names.reserve(entries_.size());
  for (const Entry& entry : entries_) names.push_back(entry.name);
  return names;
}

EvalTask TaskRegistry::make(std::string_view name, const TaskOptions& options) const {
  const auto place = std::ranges::find_if(entries_, [&](const Entry& entry) {
    return entry.name == name || std::ranges::find(entry.aliases, name) != entry.aliases.end();
  });
  if (place == entries_.end()) {
    const std::vector<std::string> known = names();
    const std::string nearest = nearest_name(name, known);
    throw Error("task", text_of("no task is called '", name, "'"),
                nearest.empty() ? "known: " + join(known, ", ") : "did you mean '" + nearest + "'?");
  }
  EvalTask task = place->make(options);
  task.name = place->name;
  return task;
}

}  // namespace hone
