// The correction for a sampler whose probabilities are not the trainer's (Yao et al., "Your Efficient RL Framework
// Secretly Brings You Off-Policy RL Training", 2025; as TRL has it).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rl/options.h"
#include "rl/policy_batch.h"

namespace hone {

struct ImportanceOptions {
  ImportanceMode mode = ImportanceMode::sequence_mask;
  double most = 3.0;
  std::optional<double> least;
};

// What the policy term of each token of a completion is multiplied with: exp of the trainer's log p minus the
// sampler's, of the token or, in the modes of sequences, of the sum over the completion. Outside [least, most] it is
// brought to the nearer end (truncate) or becomes 0 (mask).
[[nodiscard]] std::vector<float> importance_ratios(std::span<const float> trainer, std::span<const float> sampler,
                                                   const ImportanceOptions& options);

// How far a sampler's probabilities are from the trainer's, by TRL's names.
class SamplingComparison {
 public:
  void add_difference(double difference);  // of a token's log-probabilities
  void add_ratio(double ratio);            // of a token or of a completion
  [[nodiscard]] bool has_ratios() const { return ratios_ > 0; }
  // sampling/sampling_logp_difference/{mean,max}, sampling/importance_sampling_ratio/{min,mean,max}; 0 of nothing.
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

// What the samples of one generation tell, by TRL's definitions.
class ImportanceMetrics {
 public:
  explicit ImportanceMetrics(const ImportanceOptions& options) : options_(options) {}

  // `ratios`: importance_ratios of them. masked: the completion is left out; among ratios of sequences it counts as 1.
  void add(std::span<const float> trainer, std::span<const float> sampler, std::span<const float> ratios, bool masked);
  [[nodiscard]] std::vector<std::pair<std::string, double>> values() const { return comparison_.values(); }

 private:
  ImportanceOptions options_;
  SamplingComparison comparison_;
};

}  // namespace hone
