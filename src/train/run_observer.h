// Who is told of a run's checkpoints and of its end: pushes to a hub, benchmarks.
#pragma once

#include <cstdint>
#include <filesystem>

#include "core/json.h"
#include "tracker/metric_row.h"

namespace hone {

struct TrainingSubject;

// What a run is at, valid during a call.
struct RunView {
  const TrainingSubject& subject;  // its weights are those of the checkpoint, or of the model in output_dir
  const std::filesystem::path& output_dir;
  const Json& options;  // as in effect
  std::int64_t step;    // done so far
};

class RunObserver {
 public:
  virtual ~RunObserver() = default;
  // Before the first step, when the run holds all memory that it will. May throw Error.
  virtual void started(const RunView& run) { (void)run; }
  // `checkpoint` has been saved. Returns metrics of that step to be logged. Throws nothing but Interrupted.
  virtual MetricValues saved(const RunView& run, const std::filesystem::path& checkpoint) {
    (void)run, (void)checkpoint;
    return {};
  }
  // The model is in output_dir and the log is complete. May throw Error.
  virtual void finished(const RunView& run) { (void)run; }
};

}  // namespace hone
