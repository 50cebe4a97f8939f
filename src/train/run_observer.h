// Interface for actions at the start, the checkpoints and the end of a run, such as pushes to a hub and benchmarks.
#pragma once

#include <cstdint>
#include <filesystem>

#include "core/json.h"
#include "tracker/metric_row.h"

namespace hone {

struct TrainingSubject;

// State of a run during a call; valid only until the call returns.
struct RunView {
  const TrainingSubject& subject;  // its weights are those of the checkpoint, or of the model in output_dir
  const std::filesystem::path& output_dir;
  const Json& options;  // values in effect
  std::int64_t step;    // steps done so far
};

class RunObserver {
 public:
  virtual ~RunObserver() = default;
  // Called before the first step, after the run has allocated all its memory. May throw Error.
  virtual void started(const RunView& run) { (void)run; }
  // Called after a checkpoint has been saved. Returns metrics to log for that step. May throw only Interrupted.
  virtual MetricValues saved(const RunView& run, const std::filesystem::path& checkpoint) {
    (void)run, (void)checkpoint;
    return {};
  }
  // Called when the model is in output_dir and the log is complete. May throw Error.
  virtual void finished(const RunView& run) { (void)run; }
};

}  // namespace hone
