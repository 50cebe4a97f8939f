// The training loop of every kind of training: steps, logging, evaluation, checkpoints, resume. In a job every rank
// runs it; all take the same decisions, and rank 0 alone logs and calls the observers.
#pragma once

#include <cstdint>
#include <memory>

#include "train/run_checkpoints.h"
#include "train/run_log.h"
#include "train/schedule.h"
#include "train/training_task.h"

namespace hone {

class Trainer {
 public:
  Trainer(const TrainingOptions& options, TrainerSetup setup, TrainingSubject subject);

  // Resumes if the options say so, trains to the end and writes the model to output_dir. Returns the metrics of the
  // last log line. If a step, a log line or an evaluation throws (Interrupted, an Error of a reward, a Defect), the
  // complete steps are saved before the exception continues, and the same command resumes from there bit for bit.
  // Throws Error if a loss or gradient norm is not finite and on_nonfinite is stop; the weights are then those before
  // that step, and its batch is saved.
  MetricValues run(TrainingTask& task);

 private:
  MetricValues train(TrainingTask& task);
  // Runs one optimizer step, counted from 0.
  void step_once(std::int64_t step, TrainingTask& task);
  void evaluate(std::int64_t step, TrainingTask& task);
  // Saves a checkpoint, calls the observers and logs the metrics that they return.
  void save(std::int64_t step, TrainingTask& task);
  // Handles a non-finite loss or norm: writes the batch, then skips the step or saves a checkpoint and throws Error.
  void fail_nonfinite(std::int64_t step, double loss, double norm, TrainingTask& task);
  // Runs `work`. If it throws, saves the run after `steps` steps, then rethrows. before: the state of the task after
  // these steps if `work` changes it, otherwise null.
  template <class Work>
  void guarded(std::int64_t steps, TrainingTask& task, const TaskSnapshot* before, const Work& work);
  [[nodiscard]] RunView view(std::int64_t step) const;
  // Calls work(observer) for each observer, on rank 0.
  template <class Work>
  void for_observers(const Work& work);

  TrainingOptions options_;
  TrainerSetup setup_;
  TrainingSubject subject_;
  Schedule schedule_;
  std::filesystem::path output_dir_;
  RunCheckpoints checkpoints_;
  std::unique_ptr<RunLog> log_;  // set by run()
  std::int64_t first_ = 0;       // steps done before this process started
};

}  // namespace hone
