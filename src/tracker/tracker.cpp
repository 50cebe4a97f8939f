#include "tracker/tracker.h"

#include <algorithm>

#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "tracker/registry.h"

namespace hone {
namespace {

TrackerRegistry all_trackers() {
  TrackerRegistry registry;
  register_all_tracker(registry);
  return registry;
}

}  // namespace

void TrackerRegistry::add(std::string name, MakeTracker make) {
  HONE_ASSERT(find(name) == nullptr, "the tracker ", name, " is registered twice");
  trackers_.emplace_back(std::move(name), std::move(make));
}

std::vector<std::string> TrackerRegistry::names() const {
  std::vector<std::string> names;
  names.reserve(trackers_.size());
  for (const auto& [name, make] : trackers_) names.push_back(name);
  return names;
}

const MakeTracker* TrackerRegistry::find(std::string_view name) const {
  const auto at = std::ranges::find(trackers_, name, &std::pair<std::string, MakeTracker>::first);
  return at == trackers_.end() ? nullptr : &at->second;
}

std::string tracked_name(std::string_view metric) {
  constexpr std::string_view kEval = "eval_";
  return metric.starts_with(kEval) ? text_of("eval/", metric.substr(kEval.size())) : text_of("train/", metric);
}

std::vector<std::string> tracker_names(std::span<const std::string> report_to, std::string_view place) {
  const std::vector<std::string> known = all_trackers().names();
  std::vector<std::string> names;
  const auto add = [&](const std::string& name) {
    if (std::ranges::count(names, name) == 0) names.push_back(name);
  };
  for (const std::string& name : report_to) {
    if (name == "all") {
      for (const std::string& each : known) add(each);
    } else if (std::ranges::count(known, name) > 0) {
      add(name);
    } else if (!name.empty() && name != "none" && name != "no" && name != "false") {
      const std::string nearest = nearest_name(name, known);
      throw Error(place, text_of("hone does not report to '", name, "', but to ", join(known, ", "), ", all or none"),
                  nearest.empty() ? "metrics.jsonl is always written" : text_of("did you mean ", nearest, "?"));
    }
  }
  return names;
}

Trackers::Trackers(std::span<const std::string> names, const TrackedRun& run) {
  const TrackerRegistry registry = all_trackers();
  for (const std::string& name : names) {
    const MakeTracker* make = registry.find(name);
    HONE_ASSERT(make != nullptr, "no tracker ", name);
    entries_.push_back({name, (*make)(run)});
  }
}

Trackers::~Trackers() { finish(false); }

template <class Call>
void Trackers::each(const Call& call) {
  std::erase_if(entries_, [&](Entry& entry) {
    try {
      call(*entry.tracker);
      return false;
    } catch (const Error& error) {
      log_warning(text_of("nothing more is reported to ", entry.name, ": ", error.what()));
      return true;
    }
  });
}

void Trackers::log(const MetricRow& row) {
  each([&](Tracker& tracker) { tracker.log(row); });
}

void Trackers::finish(bool succeeded) {
  each([&](Tracker& tracker) { tracker.finish(succeeded); });
  entries_.clear();
}

}  // namespace hone
