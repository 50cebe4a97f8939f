// The loop that every kind of training runs in: steps, logging, evaluation, checkpoints, resume.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "train/run_checkpoints.h"
#include "train/run_log.h"
#include "train/schedule.h"
#include "train/training_task.h"

namespace hone {

class Trainer {
 public:
  Trainer(const TrainingOptions& options, TrainerSetup setup, TrainingSubject subject);

  // Resumes where the options say so, trains to the end, writes the model to output_dir. Whatever a step, a logged line
  // or an evaluation throws (Interrupted, a reward's Error, a Defect), the steps before it are saved first: the same
  // command goes on from there bit for bit. Throws Error where a loss is not finite (the weights as they were before
  // it, the batch saved). Returns the metrics of the last logged line.
  MetricValues run(TrainingTask& task);

 private:
  MetricValues train(TrainingTask& task);
  // One optimizer step.
  void step_once(std::int64_t step, TrainingTask& task);
  void evaluate(std::int64_t step, TrainingTask& task);
  // Saves a checkpoint, tells the observers of it and logs what they have measured.
  void save(std::int64_t step, TrainingTask& task);
  void fail_nonfinite(std::int64_t step, double loss, double norm, TrainingTask& task);
  // Runs `work`; before what it throws goes on, the first `steps` steps are saved. `before`: the task's state behind
  // them, where `work` moves it.
  template <class Work>
  void guarded(std::int64_t steps, TrainingTask& task, const Json* before, const Work& work);
  [[nodiscard]] RunView view(std::int64_t step) const;

  TrainingOptions options_;
  TrainerSetup setup_;
  TrainingSubject subject_;
  Schedule schedule_;
  std::filesystem::path output_dir_;
  RunCheckpoints checkpoints_;
  std::optional<RunLog> log_;  // of run()
  std::int64_t first_ = 0;     // steps done before this process
};

}  // namespace hone
