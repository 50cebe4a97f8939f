#include "rl/importance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace hone {
namespace {

bool is_of_sequences(ImportanceMode mode) {
  return mode == ImportanceMode::kSequenceTruncate || mode == ImportanceMode::kSequenceMask;
}

// Clamps a ratio to its bounds, or sets it to 0 outside of them.
double constrained(double ratio, const ImportanceOptions& options) {
  const double least = options.least.value_or(0);
  if (options.mode == ImportanceMode::kTokenTruncate || options.mode == ImportanceMode::kSequenceTruncate) {
    return std::clamp(ratio, least, options.most);
  }
  return ratio < least || ratio > options.most ? 0.0 : ratio;
}

}  // namespace

std::vector<float> importance_ratios(std::span<const float> trainer, std::span<const float> sampler,
                                     const ImportanceOptions& options) {
  HONE_ASSERT(trainer.size() == sampler.size(), trainer.size(), " and ", sampler.size(), " log-probabilities");
  std::vector<float> ratios(trainer.size());
  double sum = 0;
  for (std::size_t i = 0; i < trainer.size(); ++i) {
    const double difference = static_cast<double>(trainer[i]) - static_cast<double>(sampler[i]);
    ratios[i] = static_cast<float>(constrained(std::exp(difference), options));
    sum += difference;
  }
  if (is_of_sequences(options.mode)) {
    std::fill(ratios.begin(), ratios.end(), static_cast<float>(constrained(std::exp(sum), options)));
  }
  return ratios;
}

void SamplingComparison::add_difference(double difference) {
  difference_sum_ += std::abs(difference);
  difference_max_ = std::max(difference_max_, std::abs(difference));
  ++differences_;
}

void SamplingComparison::add_ratio(double ratio) {
  ratio_sum_ += ratio;
  ratio_min_ = ratios_ == 0 ? ratio : std::min(ratio_min_, ratio);
  ratio_max_ = ratios_ == 0 ? ratio : std::max(ratio_max_, ratio);
  ++ratios_;
}

void SamplingComparison::add_ranks(const Job& job) {
  std::array<double, 4> sums{difference_sum_, differences_, ratio_sum_, ratios_};
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  std::array<double, 3> most{difference_max_, ratios_ == 0 ? kNone : -ratio_min_, ratios_ == 0 ? kNone : ratio_max_};
  job.sum(sums);
  job.maximum(most);
  difference_sum_ = sums[0];
  differences_ = sums[1];
  ratio_sum_ = sums[2];
  ratios_ = sums[3];
  difference_max_ = most[0];
  ratio_min_ = ratios_ == 0 ? 0 : -most[1];
  ratio_max_ = ratios_ == 0 ? 0 : most[2];
}

std::vector<std::pair<std::string, double>> SamplingComparison::values() const {
  return {{"sampling/sampling_logp_difference/mean", differences_ > 0 ? difference_sum_ / differences_ : 0},
          {"sampling/sampling_logp_difference/max", difference_max_},
          {"sampling/importance_sampling_ratio/min", ratio_min_},
          {"sampling/importance_sampling_ratio/mean", ratios_ > 0 ? ratio_sum_ / ratios_ : 0},
          {"sampling/importance_sampling_ratio/max", ratio_max_}};
}

void ImportanceMetrics::add(std::span<const float> trainer, std::span<const float> sampler,
                            std::span<const float> ratios, bool masked) {
  const bool of_sequences = is_of_sequences(options_.mode);
  if (of_sequences) comparison_.add_ratio(masked || ratios.empty() ? 1.0 : static_cast<double>(ratios[0]));
  if (masked) return;
  for (std::size_t i = 0; i < trainer.size(); ++i) {
    comparison_.add_difference(static_cast<double>(trainer[i]) - static_cast<double>(sampler[i]));
    if (!of_sequences) comparison_.add_ratio(static_cast<double>(ratios[i]));
  }
}

}  // namespace hone
