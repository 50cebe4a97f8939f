// Trackers report the metrics of a run to programs that display them: `report_to: [tensorboard, wandb]`.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/option_set.h"
#include "tracker/metric_row.h"

namespace hone {

// Returns the options that all registered trackers declare, with their defaults.
[[nodiscard]] OptionSet tracker_keys();

// Seconds since 1970, the time of a tracker's events.
[[nodiscard]] double seconds_now();

// Description of the tracked run. The pointer and the span must be valid while the tracker is created.
struct TrackedRun {
  std::filesystem::path output_dir;
  std::string command;   // "sft"
  std::string run_name;  // may be empty
  const Json* options;   // all options in effect, for display
  // For a resumed run: the step after which it continues, and the rows logged up to that step. Otherwise 0 and empty.
  std::int64_t resumed_step = 0;
  std::span<const MetricRow> history;
  OptionSet keys = tracker_keys();
};

class Tracker {
 public:
  virtual ~Tracker() = default;
  // Reports a row of metrics.jsonl. Throws Error if it cannot be written.
  virtual void log(const MetricRow& row) = 0;
  // Ends the report. succeeded: false for an interrupted or failed run.
  virtual void finish(bool succeeded) = 0;
};

// Returns the name of a metric in trackers, as in transformers: "eval/loss" for eval_loss, otherwise "train/NAME".
[[nodiscard]] std::string tracked_name(std::string_view metric);

// The trackers of a run. A tracker that fails is named in a warning and not used any further; the training continues.
class Trackers {
 public:
  Trackers() = default;
  // Creates the trackers; names are those that tracker_names() returns. Throws Error if a tracker cannot start.
  Trackers(std::span<const std::string> names, const TrackedRun& run);
  Trackers(const Trackers&) = delete;
  Trackers& operator=(const Trackers&) = delete;
  ~Trackers();  // calls finish(false) unless finish() was called

  void log(const MetricRow& row);
  void finish(bool succeeded);

 private:
  struct Entry {
    std::string name;
    std::unique_ptr<Tracker> tracker;
  };
  template <class Call>
  void each(const Call& call);

  std::vector<Entry> entries_;
};

// Returns the registered trackers as the help lists them: "tensorboard, wandb (offline)".
[[nodiscard]] std::string tracker_list();
// Returns the trackers that report_to names, each once: "all" stands for all registered trackers, "none" for none of
// them. Throws Error that begins with `place` if a name is unknown.
[[nodiscard]] std::vector<std::string> tracker_names(std::span<const std::string> report_to, std::string_view place);

}  // namespace hone
