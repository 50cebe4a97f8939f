// Interface between the training loop and a kind of training (next-token training, GRPO).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/json.h"
#include "model/model.h"
#include "text/tokenizer.h"
#include "train/job.h"
#include "train/metrics.h"
#include "train/optimizer.h"
#include "train/options.h"
#include "train/run_observer.h"

namespace hone {

// A part of a task's state that is large: a tensor in host memory. Copies share its bytes, which never change.
struct TaskTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::int64_t> shape;
  std::shared_ptr<const std::vector<std::byte>> bytes;
};

class TrainingTask {
 public:
  virtual ~TrainingTask() = default;

  // Runs the micro-batches of optimizer step `step`, counted from 0, and leaves their gradients accumulated. Returns
  // metrics that include "loss"; each is averaged over the steps between two log lines.
  [[nodiscard]] virtual MetricValues accumulate(std::int64_t step) = 0;
  // Returns the names of further metrics that log lines show after the loss, in order.
  [[nodiscard]] virtual std::vector<std::string> shown_metrics() const { return {}; }
  // Returns why a step with these metrics and this gradient norm has no training effect, and what to do about it; empty
  // if it has an effect.
  [[nodiscard]] virtual std::string idle_cause(const MetricValues& values, double grad_norm) const;
  // Called after the optimizer has updated the weights in step `step`.
  virtual void after_update(std::int64_t step) { (void)step; }
  // Return the passes over the data, and the tokens read, of all steps so far.
  [[nodiscard]] virtual double epoch() const = 0;
  [[nodiscard]] virtual std::int64_t tokens_seen() const = 0;
  // Returns the FLOPs of forward and backward passes since the task was created, for the logged rate.
  [[nodiscard]] virtual double flops() const = 0;
  // Evaluates after `step` steps (0: before the first one). Returns nothing if there is no evaluation data.
  [[nodiscard]] virtual MetricValues evaluate(std::int64_t step) {
    (void)step;
    return {};
  }
  // Returns the batch of the last step, for the inspection of a non-finite loss.
  [[nodiscard]] virtual Json last_batch() const = 0;
  // Return everything that a resume needs in addition to weights and optimizer states. A checkpoint stores the tensors
  // next to those of the optimizer.
  [[nodiscard]] virtual Json state() const = 0;
  [[nodiscard]] virtual std::vector<TaskTensor> state_tensors() const { return {}; }
  // Restores what state() and state_tensors() have returned together.
  virtual void restore(const Json& state, std::span<const TaskTensor> tensors) = 0;
};

// The model that is trained and its parts.
struct TrainingSubject {
  const Model& model;
  TensorStore& weights;
  Optimizer& optimizer;
  const Tokenizer& tokenizer;
  std::string generation_config;  // JSON, written next to the model
};

struct TrainerSetup {
  std::string command;  // for example "sft"; shown by the progress bar and stored in checkpoints
  std::string title;    // for example "sft NAME"; begins the last line of the log; empty: the command
  std::int64_t total_steps = 0;
  std::string options;                       // JSON, values in effect; stored in checkpoints
  std::vector<RunObserver*> observers = {};  // called on rank 0 only
  Job job = {};
};

}  // namespace hone
