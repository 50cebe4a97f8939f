// What a run saves and goes on from: its checkpoints, the best of them, the model in its output folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "core/json.h"
#include "train/training_task.h"

namespace hone {

class CheckpointStore;

class RunCheckpoints {
 public:
  // `setup` and `subject` outlive it.
  RunCheckpoints(const TrainingOptions& options, const TrainerSetup& setup, TrainingSubject& subject);
  RunCheckpoints(const RunCheckpoints&) = delete;
  RunCheckpoints& operator=(const RunCheckpoints&) = delete;
  ~RunCheckpoints();

  // Goes on from a checkpoint where the options say so; returns the steps that are done then. Throws Error.
  [[nodiscard]] std::int64_t resume(TrainingTask& task);
  // Saves the run as it is after `step` steps, and deletes what save_total_limit leaves no room for. Nothing happens
  // where this step is the last one saved.
  void save(std::int64_t step, const TrainingTask& task);
  // Saves a run that ends early, and says so. `before`: the task's state behind its last whole step, where the task has
  // moved on.
  void save_early(std::int64_t steps, TrainingTask& task, const Json* before);
  // Remembers an evaluation that is better than all before it; its checkpoint is to be saved right behind it. Throws
  // Error where it has no such metric.
  void compare_with_best(std::int64_t step, const MetricValues& values);
  // Whether the evaluation of this step is the best so far.
  [[nodiscard]] bool is_best(std::int64_t step) const { return best_ && best_->step == step; }
  // Takes the weights of the best evaluation, where there was one.
  void load_best();
  // Writes the model to the output folder.
  void save_final() const;

  [[nodiscard]] std::filesystem::path folder_of(std::int64_t step) const;
  [[nodiscard]] const Json& options_json() const { return *options_json_; }

 private:
  struct Best {
    std::int64_t step = 0;
    double value = 0;
  };

  void load_model(const std::filesystem::path& checkpoint);
  // Returns the options under which it was saved.
  Json load(const std::filesystem::path& checkpoint, TrainingTask& task);

  const TrainingOptions& options_;
  const TrainerSetup& setup_;
  TrainingSubject& subject_;
  std::filesystem::path output_dir_;
  std::unique_ptr<CheckpointStore> store_;
  std::unique_ptr<const Json> options_json_;  // setup_.options
  std::optional<Best> best_;
  std::int64_t last_saved_ = -1;
  bool replaces_ = false;  // an earlier run, whose checkpoints go with the first one saved
};

}  // namespace hone
