// One kind of training, as the loop sees it, and what is trained.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json.h"
#include "model/model.h"
#include "text/tokenizer.h"
#include "train/metrics.h"
#include "train/optimizer.h"
#include "train/options.h"
#include "train/run_observer.h"

namespace hone {

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

}  // namespace hone
