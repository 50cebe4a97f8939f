// The trackers. Each folder src/tracker/NAME holds a NAME.cpp that defines `void register_NAME(TrackerRegistry&)`.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tracker/tracker.h"

namespace hone {

using MakeTracker = std::function<std::unique_ptr<Tracker>(const TrackedRun&)>;

class TrackerRegistry {
 public:
  void add(std::string name, MakeTracker make);
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] const MakeTracker* find(std::string_view name) const;  // nullptr where there is none

 private:
  std::vector<std::pair<std::string, MakeTracker>> trackers_;
};
using RegistryOf_tracker = TrackerRegistry;

void register_all_tracker(TrackerRegistry& registry);

}  // namespace hone
