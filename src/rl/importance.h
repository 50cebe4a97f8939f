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

// What the samples of one generation tell, by TRL's names and definitions.
class ImportanceMetrics {
 public:
  explicit ImportanceMetrics(const ImportanceOptions& options) : options_(options) {}

  // `ratios`: importance_ratios of them. masked: the completion is left out; among ratios of sequences it counts as 1.
  void add(std::span<const float> trainer, std::span<const float> sampler, std::span<const float> ratios, bool masked);
  // sampling/sampling_logp_difference/{mean,max}, sampling/importance_sampling_ratio/{min,mean,max}; 0 without tokens.
  [[nodiscard]] std::vector<std::pair<std::string, double>> values() const;

 private:
  void add_ratio(double ratio);

  ImportanceOptions options_;
  double difference_sum_ = 0;
  double difference_max_ = 0;
  double tokens_ = 0;
  double ratio_sum_ = 0;
  double ratio_min_ = 0;
  double ratio_max_ = 0;
  double ratios_ = 0;
};

}  // namespace hone
