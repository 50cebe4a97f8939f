// Importance correction for a sampler whose probabilities differ from the trainer's, such as a server with other
// kernels (Yao et al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training", 2025; as in TRL).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rl/options.h"
#include "rl/policy_batch.h"

#include "train/job.h"

namespace hone {

struct ImportanceOptions {
  ImportanceMode mode = ImportanceMode::kSequenceMask;
  double most = 3.0;            // vllm_importance_sampling_cap
  std::optional<double> least;  // vllm_importance_sampling_clip_min; unset: 0
};

// Returns the factor of the policy term for each token of a completion, [tokens]: exp(trainer - sampler) of its
// log-probabilities or, in the sequence modes, exp of the sum of these differences over the completion. A ratio outside
// [least, most] is clamped (truncate modes) or set to 0 (mask modes). trainer, sampler: [tokens].
[[nodiscard]] std::vector<float> importance_ratios(std::span<const float> trainer, std::span<const float> sampler,
                                                   const ImportanceOptions& options);

// Statistics of the differences between the trainer's and a sampler's log-probabilities, under TRL's names.
class SamplingComparison {
 public:
  void add_difference(double difference);  // trainer minus sampler, log-probability of one token
  void add_ratio(double ratio);            // importance ratio of one token or completion
  [[nodiscard]] bool has_ratios() const { return ratios_ > 0; }
  [[nodiscard]] double largest_difference() const { return difference_max_; }
  // Adds what the other ranks of a job have added.
  void add_ranks(const Job& job);
  // Returns sampling/sampling_logp_difference/{mean,max} of absolute differences and
  // sampling/importance_sampling_ratio/{min,mean,max}; 0 if nothing was added.
  [[nodiscard]] std::vector<std::pair<std::string, double>> values() const;

 private:
  double difference_sum_ = 0;
  double difference_max_ = 0;
  double differences_ = 0;
  double ratio_sum_ = 0;
  double ratio_min_ = 0;
  double ratio_max_ = 0;
  double ratios_ = 0;
};

// Accumulates these statistics over the completions of one generation, by TRL's definitions.
class ImportanceMetrics {
 public:
  explicit ImportanceMetrics(const ImportanceOptions& options) : options_(options) {}

  // Adds one completion; `ratios` is importance_ratios(trainer, sampler). A masked completion is left out, except that
  // in the sequence modes it counts as a ratio of 1.
  void add(std::span<const float> trainer, std::span<const float> sampler, std::span<const float> ratios, bool masked);
  // Adds what the other ranks of a job have added.
  void add_ranks(const Job& job) { comparison_.add_ranks(job); }
  [[nodiscard]] std::vector<std::pair<std::string, double>> values() const { return comparison_.values(); }

 private:
  ImportanceOptions options_;
  SamplingComparison comparison_;
};

}  // namespace hone
