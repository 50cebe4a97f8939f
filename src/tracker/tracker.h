// Programs that show the figures of runs, told what a run logs: `report_to: [tensorboard, wandb]`.
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

// The keys of a recipe that all registered trackers declare, with their defaults.
[[nodiscard]] OptionSet tracker_keys();

// The run that is tracked. The pointer and the span need to live while the tracker is made.
struct TrackedRun {
  std::filesystem::path output_dir;
  std::string command;   // "sft"
  std::string run_name;  // may be empty
  const Json* options;   // all keys as in effect, to be shown
  // Of a run that is resumed: the step it goes on after, and the rows that it logged up to there.
  std::int64_t resumed_step = 0;
  std::span<const MetricRow> history;
  OptionSet keys = tracker_keys();
};

class Tracker {
 public:
  virtual ~Tracker() = default;
  // A row of metrics.jsonl. Throws Error where it cannot be written.
  virtual void log(const MetricRow& row) = 0;
  // The run is over; an interrupted one has not succeeded.
  virtual void finish(bool succeeded) = 0;
};

// The name that a metric has in trackers, as transformers gives it: "eval/loss" for eval_loss, else "train/NAME".
[[nodiscard]] std::string tracked_name(std::string_view metric);

// The trackers of a run. One that fails is named in a warning and left out from then on: it does not end the training.
class Trackers {
 public:
  Trackers() = default;
  // `names`: as in report_to. Throws Error where one is unknown, or cannot begin.
  Trackers(std::span<const std::string> names, const TrackedRun& run);
  Trackers(const Trackers&) = delete;
  Trackers& operator=(const Trackers&) = delete;
  ~Trackers();  // as finish(false), where it was not called

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

// The trackers that there are, as help names them: "tensorboard, wandb (offline)".
[[nodiscard]] std::string tracker_list();
// report_to without what asks for none: "none"; "all" stands for all that there are. Throws Error at an unknown name,
// beginning with `place`.
[[nodiscard]] std::vector<std::string> tracker_names(std::span<const std::string> report_to, std::string_view place);

}  // namespace hone
