// The trackers. Each folder src/tracker/NAME holds a NAME.cpp that defines `void register_NAME(TrackerRegistry&)`,
// which adds the tracker with the keys of a recipe that it reads.
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
  std::string name;  // as in report_to
  std::string note;  // what help says beside the name, in brackets; may be empty
  OptionSet keys;    // with their defaults
  MakeTracker make;
};

class TrackerRegistry {
 public:
  void add(TrackerEntry tracker);
  [[nodiscard]] std::span<const TrackerEntry> entries() const { return trackers_; }
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  std::vector<TrackerEntry> trackers_;
};
using RegistryOf_tracker = TrackerRegistry;

void register_all_tracker(TrackerRegistry& registry);  // generated

// The trackers of this process: at first hone's.
[[nodiscard]] TrackerRegistry& tracker_registry();

}  // namespace hone
