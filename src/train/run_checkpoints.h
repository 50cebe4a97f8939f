// Saves and restores a run: checkpoints, the best checkpoint, and the final model in the output folder. In a job rank 0
// writes and all ranks read, from the same folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "core/json.h"
#include "train/training_task.h"

namespace hone {

struct CheckpointFolder;
class HeldWeights;
struct TaskSnapshot;
struct TensorSource;
class CheckpointStore;

// Returns the checkpoint that the options ask to resume, if there is one. Throws Error if it is missing.
[[nodiscard]] std::optional<CheckpointFolder> checkpoint_to_resume(const TrainingOptions& options);

class RunCheckpoints {
 public:
  // The references must outlive the object.
  RunCheckpoints(const TrainingOptions& options, const TrainerSetup& setup, TrainingSubject& subject);
  RunCheckpoints(const RunCheckpoints&) = delete;
  RunCheckpoints& operator=(const RunCheckpoints&) = delete;
  ~RunCheckpoints();

  // Loads a checkpoint if the options ask for it or output_dir has one. Returns the number of steps done, 0 for a new
  // run. Throws Error if the checkpoint cannot be resumed.
  [[nodiscard]] std::int64_t resume(TrainingTask& task);
  // Saves the run after `step` steps, and deletes the oldest checkpoints beyond save_total_limit. Does nothing if this
  // step was the last one saved.
  void save(std::int64_t step, const TrainingTask& task);
  // Saves a run that ends early after `steps` complete steps, and logs it. before: the state of the task after these
  // steps if the task has moved on since, otherwise null.
  void save_early(std::int64_t steps, TrainingTask& task, const TaskSnapshot* before);
  // Records the evaluation of a step if it is better than all before it; the caller must then save a checkpoint of this
  // step. Throws Error if the evaluation lacks metric_for_best_model.
  void compare_with_best(std::int64_t step, const MetricValues& values);
  // Returns true if the evaluation of this step is the best so far.
  [[nodiscard]] bool is_best(std::int64_t step) const { return best_ && best_->step == step; }
  // Loads the weights of the best evaluation if there was one.
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

  void write(std::int64_t step, const TrainingTask& task, std::vector<TensorSource> tensors,
             const TensorStore& weights);
  // Returns true if this process does not have the whole weights.
  [[nodiscard]] bool has_parts() const;
  [[nodiscard]] HeldWeights held_weights() const;
  // Calls write(weights) with the whole weights, which only rank 0 has if they are divided; all ranks then call it.
  template <class Write>
  void with_weights(const Write& write) const;
  void load_model(const std::filesystem::path& checkpoint);
  // Throws Error if 8-bit states of a checkpoint have the blocks of another division of the weights.
  void check_state_blocks(const std::filesystem::path& checkpoint, const Json& state) const;
  // Loads a checkpoint and returns the options with which it was saved.
  Json load(const std::filesystem::path& checkpoint, TrainingTask& task);

  const TrainingOptions& options_;
  const TrainerSetup& setup_;
  TrainingSubject& subject_;
  std::filesystem::path output_dir_;
  std::unique_ptr<CheckpointStore> store_;    // null on other ranks than 0
  std::unique_ptr<const Json> options_json_;  // parsed setup_.options
  std::optional<Best> best_;
  std::int64_t last_saved_ = -1;
  bool replaces_ = false;  // the first checkpoint saved deletes those of an earlier run
};

}  // namespace hone
