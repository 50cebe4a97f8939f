// The loop that every kind of training runs in: steps, logging, evaluation, checkpoints, resume.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "model/model.h"
#include "text/tokenizer.h"
#include "train/metrics.h"
#include "train/optimizer.h"
#include "train/options.h"
#include "train/run_notes.h"
#include "train/run_observer.h"

namespace hone {

class CheckpointStore;
struct MetricWindow;
class Trackers;
class UsageMeter;

// One kind of training, as the loop sees it.
class TrainingTask {
 public:
  virtual ~TrainingTask() = default;

  // Runs the micro-batches of optimizer step `step` (from 0) and leaves their gradients accumulated. The metrics hold
  // "loss"; each is averaged over the steps between two logged lines.
  [[nodiscard]] virtual MetricValues accumulate(std::int64_t step) = 0;
  // Metrics of its own that the logged line shows, in order, behind the loss.
  [[nodiscard]] virtual std::vector<std::string> shown_metrics() const { return {}; }
  // Why a step with these values and this gradient norm has taught nothing, and what may be done about it; empty where
  // it has taught something.
  [[nodiscard]] virtual std::string idle_cause(const MetricValues& values, double grad_norm) const;
  // After the weights have moved.
  virtual void after_update(std::int64_t step) { (void)step; }
  // Passes over the data that the steps so far have made, and tokens they have read.
  [[nodiscard]] virtual double epoch() const = 0;
  [[nodiscard]] virtual std::int64_t tokens_seen() const = 0;
  // FLOPs of forward and backward passes since the task was made, for the rate that is logged.
  [[nodiscard]] virtual double flops() const = 0;
  // After step `step`, counted from 1 (0: before the first). Empty where there is nothing to evaluate on.
  [[nodiscard]] virtual MetricValues evaluate(std::int64_t step) {
    (void)step;
    return {};
  }
  // What the last step read, for looking at a step whose loss was not finite.
  [[nodiscard]] virtual Json last_batch() const = 0;
  // Everything beside weights and optimizer that a resume needs.
  [[nodiscard]] virtual Json state() const = 0;
  virtual void restore(const Json& state) = 0;
  // Tensors of its own to be kept in a checkpoint (a reference model), or null.
  [[nodiscard]] virtual TensorStore* extra_state() { return nullptr; }
};

// What is trained.
struct TrainingSubject {
  const Model& model;
  TensorStore& weights;
  Optimizer& optimizer;
  const Tokenizer& tokenizer;
  std::string generation_config;  // JSON, written beside the model
};

struct TrainerSetup {
  std::string command;  // "sft": named in progress and in checkpoints
  std::string title;    // "sft NAME": begins what is logged of the run; empty: the command
  std::int64_t total_steps = 0;
  std::string options;  // JSON, as in effect: kept in checkpoints
  std::vector<RunObserver*> observers = {};
};

class Trainer {
 public:
  Trainer(const TrainingOptions& options, TrainerSetup setup, TrainingSubject subject);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  ~Trainer();

  // Resumes where the options say so, trains to the end, writes the model to output_dir. Whatever a step, a logged line
  // or an evaluation throws (Interrupted, a reward's Error, a Defect), the steps before it are saved first: the same
  // command goes on from there bit for bit. Throws Error where a loss is not finite (the weights as they were before
  // it, the batch saved). Returns the metrics of the last logged line.
  MetricValues run(TrainingTask& task);

 private:
  // The best evaluation so far; its checkpoint is saved right behind it.
  struct Best {
    std::int64_t step = 0;
    double value = 0;
  };

  [[nodiscard]] std::int64_t resume(TrainingTask& task);
  // Opens metrics.jsonl and the trackers of a run that goes on after `first` steps.
  void open_metrics();
  void write_row(const MetricRow& row);
  MetricValues train(TrainingTask& task);
  void load_model(const std::filesystem::path& checkpoint);
  // Returns the options under which it was saved.
  Json load_checkpoint(const std::filesystem::path& checkpoint, TrainingTask& task);
  void save_checkpoint(std::int64_t step, TrainingTask& task);
  // Tells the observers of the checkpoint that was just saved, and logs what they have measured.
  void show_checkpoint(std::int64_t step, MetricWindow& window);
  void fail_nonfinite(std::int64_t step, double loss, double norm, TrainingTask& task);
  // Runs `work`; before what it throws goes on, the first `steps` steps are saved. `before`: the task's state behind
  // them, where `work` moves it.
  template <class Work>
  void guarded(std::int64_t steps, TrainingTask& task, const Json* before, const Work& work);
  // Saves a run that ends early, and says so.
  void save_early(std::int64_t steps, TrainingTask& task, const Json* before);
  // One optimizer step; false where it was skipped.
  bool step_once(std::int64_t step, TrainingTask& task, MetricWindow& window);
  MetricValues log(std::int64_t step, const TrainingTask& task, MetricWindow& window);
  // The time it takes is not the window's.
  void evaluate(std::int64_t step, TrainingTask& task, MetricWindow& window);
  // Remembers an evaluation that is better than all before it. Throws Error where it has no such metric.
  void compare_with_best(std::int64_t step, const MetricValues& values);
  void load_best();
  void save_final() const;

  TrainingOptions options_;
  TrainerSetup setup_;
  TrainingSubject subject_;
  Schedule schedule_;
  std::filesystem::path output_dir_;
  std::unique_ptr<CheckpointStore> checkpoints_;
  std::unique_ptr<MetricsWriter> metrics_;
  std::unique_ptr<Trackers> trackers_;
  std::unique_ptr<UsageMeter> usage_;
  std::int64_t first_ = 0;  // steps done before this process
  std::int64_t last_saved_ = -1;
  bool replaces_ = false;  // an earlier run, whose checkpoints go with the first one saved
  std::optional<Best> best_;
  IdleWatch idle_;
  std::unique_ptr<const Json> options_json_;  // setup_.options
};

}  // namespace hone
