#include "tracker/tracker.h"

#include <algorithm>
#include <chrono>

#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "tracker/registry.h"

namespace hone {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

TrackerRegistry& tracker_registry() {
  static TrackerRegistry registry = [] {
    TrackerRegistry filled;
    register_all_tracker(filled);
    return filled;
  }();
  return registry;
}

void TrackerRegistry::add(TrackerEntry tracker) {
  HONE_ASSERT(std::ranges::count(trackers_, tracker.name, &TrackerEntry::name) == 0, "the tracker ", tracker.name,
              " is registered twice");
  trackers_.push_back(std::move(tracker));
}

std::vector<std::string> TrackerRegistry::names() const {
  std::vector<std::string> names;
  names.reserve(trackers_.size());
  for (const TrackerEntry& tracker : trackers_) names.push_back(tracker.name);
  return names;
}

OptionSet tracker_keys() {
  OptionSet keys;
  for (const TrackerEntry& tracker : tracker_registry().entries()) keys.add(tracker.keys);
  return keys;
}

std::string tracker_list() {
  std::string list;
  for (const TrackerEntry& tracker : tracker_registry().entries()) {
    list +=
        text_of(list.empty() ? "" : ", ", tracker.name, tracker.note.empty() ? "" : text_of(" (", tracker.note, ")"));
  }
  return list;
}

std::string tracked_name(std::string_view metric) {
  constexpr std::string_view kEval = "eval_";
  return metric.starts_with(kEval) ? text_of("eval/", metric.substr(kEval.size())) : text_of("train/", metric);
}

std::vector<std::string> tracker_names(std::span<const std::string> report_to, std::string_view place) {
  const std::vector<std::string> known = tracker_registry().names();
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
  const std::span<const TrackerEntry> known = tracker_registry().entries();
  for (const std::string& name : names) {
    const auto tracker = std::ranges::find(known, name, &TrackerEntry::name);
    HONE_ASSERT(tracker != known.end(), "no tracker ", name);
    entries_.push_back({name, tracker->make(run)});
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
