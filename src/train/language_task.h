// The next-token training task on batches of documents: pre-training and supervised fine-tuning.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/loader.h"
#include "train/loss_program.h"
#include "train/trainer.h"

namespace hone {

class LanguageTask final : public TrainingTask {
 public:
  struct Setup {
    Executable& training;              // program of trace_training
    BatchWork work;                    // cost of that program
    Executable* evaluation = nullptr;  // program of trace_evaluation; null: no evaluation
    BatchLoader& batches;
    BatchLoader* eval_batches = nullptr;  // an evaluation reads one epoch of it
    std::int64_t gradient_accumulation_steps = 1;
    std::uint64_t seed = 0;  // seed of dropout
  };
  explicit LanguageTask(const Setup& setup) : setup_(setup) {}

  MetricValues accumulate(std::int64_t step) override;
  double epoch() const override;
  std::int64_t tokens_seen() const override { return tokens_seen_; }
  double flops() const override { return flops_; }
  MetricValues evaluate(std::int64_t step) override;
  Json last_batch() const override;
  Json state() const override;
  void restore(const Json& state) override;

 private:
  Setup setup_;
  std::int64_t tokens_seen_ = 0;
  double flops_ = 0;
  std::vector<HostBatch> micro_batches_;  // micro-batches of the last step
};

}  // namespace hone
