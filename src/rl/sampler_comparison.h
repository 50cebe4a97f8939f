// Compares what drew the completions of a generation with the trainer, whose probabilities may be others: those of a
// server's kernels, or of older weights.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "rl/importance.h"
#include "rl/rollout.h"
#include "train/job.h"

namespace hone {

class SamplerComparison {
 public:
  // `options` must outlive the object.
  explicit SamplerComparison(const GrpoOptions& options);

  // Returns the trainer's log-probabilities of completion tokens, [samples][tokens].
  using TrainerLogps = std::function<std::vector<std::vector<float>>(std::span<const PolicySample>)>;
  // Receives the difference of a token's log-probabilities that must be 0.
  using CheckExact = std::function<void(double difference)>;
  // Replaces the log-probabilities of this rank's samples by the trainer's and, if the options correct for the
  // difference, sets the importance ratios. Samples without stale tokens have the trainer's already if the engine draws
  // as the trainer computes (GrpoOptions::samples_as_trained()).
  void correct(Rollout& rollout, const TrainerLogps& trainer_logps, const CheckExact& check);
  // Records in rollout.importance what all ranks of a job have compared.
  void record(const Job& job, Rollout& rollout);

 private:
  const GrpoOptions& options_;
  ImportanceOptions importance_;
  ImportanceMetrics metrics_;
  double tokens_ = 0;
  double stale_tokens_ = 0;
};

}  // namespace hone
