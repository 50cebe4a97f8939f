// Registry of trackers. Each folder src/tracker/NAME holds a NAME.cpp that defines
// `void register_NAME(TrackerRegistry&)`, which adds the tracker and the options that it declares.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tracker/tracker.h"

namespace hone {

using MakeTracker = std::function<std::unique_ptr<Tracker>(const TrackedRun&)>;

struct TrackerEntry {
  std::string name;  // name in report_to
  std::string note;  // note that the help shows in brackets after the name; may be empty
  OptionSet keys;    // options of the tracker with their defaults
  MakeTracker make;
};

class TrackerRegistry {
 public:
  // Adds a tracker. Throws Defect if the name is taken.
  void add(TrackerEntry tracker);
  [[nodiscard]] std::span<const TrackerEntry> entries() const { return trackers_; }
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  std::vector<TrackerEntry> trackers_;
};
using RegistryOf_tracker = TrackerRegistry;

void register_all_tracker(TrackerRegistry& registry);  // generated

// Returns the registry of this process, which contains hone's trackers from the start.
[[nodiscard]] TrackerRegistry& tracker_registry();

}  // namespace hone
