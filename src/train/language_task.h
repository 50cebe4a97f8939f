// The next-token training task on batches of documents: pre-training and supervised fine-tuning.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "data/loader.h"
#include "train/job.h"
#include "train/loss_program.h"
#include "train/pipeline.h"
#include "train/trainer.h"

namespace hone {

// Returns the micro-batches of the next optimizer step, whose sequences are those of the next `batches_per_step`
// batches or of what is left of the epoch. In a job each reader (Job::reader) gets as many batches, those that follow
// the ones of the reader before it, so that a step reads the batches of job.readers() steps of one process. The ranks
// of a context group get their shares of the micro-batches of their reader (data/context_share.h).
[[nodiscard]] std::vector<HostBatch> next_micro_batches(BatchLoader& loader, std::int64_t batches_per_step,
                                                        BatchLimits limits, const Job& job = {});
// Makes the ranks of a job run the same programs as often: appends empty micro-batches up to the largest number of any
// rank, at least one, and returns for each of them the most tokens of any rank.
[[nodiscard]] std::vector<std::int64_t> agree_on_launches(std::vector<HostBatch>& micro_batches, const Job& job);
// Batches of an evaluation that are laid into micro-batches together.
inline constexpr std::int64_t kEvaluationBatches = 16;

class LanguageTask final : public TrainingTask {
 public:
  struct Setup {
    SizedExecutables training;  // programs of trace_training
    // The same with sums of gradients, for the last micro-batch of a step; unset: training programs do what is needed.
    std::optional<SizedExecutables> summing = std::nullopt;
    Executable* quantization = nullptr;  // runs before the micro-batches of a step; null: none
    BatchWork work;                      // cost of these programs
    BatchLimits limits;                  // of a micro-batch
    BatchLoader& batches;
    std::optional<SizedExecutables> evaluation = std::nullopt;  // programs of trace_evaluation; unset: no evaluation
    BatchLimits eval_limits = {};
    BatchLoader* eval_batches = nullptr;  // an evaluation reads one epoch of it
    std::int64_t gradient_accumulation_steps = 1;
    std::uint64_t seed = 0;  // seed of dropout
    Job job = {};
    // True if programs are operations between the ranks: all of them then run the same ones in the same order.
    bool training_communicates = false;
    bool evaluation_communicates = false;
  };
  // pipeline: runs the programs if this process has a stage of the model; must outlive the task.
  // All ranks of a job create it together.
  explicit LanguageTask(Setup setup, Pipeline* pipeline = nullptr);

  MetricValues accumulate(std::int64_t step) override;
  std::vector<std::string> shown_metrics() const override;
  double epoch() const override;
  std::int64_t tokens_seen() const override { return tokens_seen_; }
  double flops() const override { return flops_; }
  MetricValues evaluate(std::int64_t step) override;
  Json last_batch() const override;
  Json state() const override;
  void restore(const Json& state, std::span<const TaskTensor> tensors) override;

 private:
  // Runs the micro-batches of a step. tokens: the most of any rank for each of them; empty: this rank's own.
  [[nodiscard]] LossSums launch_step(std::int64_t step, double weight, std::span<const std::int64_t> tokens);

  Setup setup_;
  Pipeline* pipeline_;
  ModelFigures figures_;  // those of a step and of an evaluation, without any runs
  ModelFigures eval_figures_;
  std::int64_t tokens_seen_ = 0;
  double flops_ = 0;
  std::vector<HostBatch> micro_batches_;  // micro-batches of the last step
};

}  // namespace hone
