#include "rl/sampler_comparison.h"

#include <algorithm>
#include <array>
#include <utility>

namespace hone {
namespace {

ImportanceOptions importance_options(const GrpoOptions& options) {
  return {.mode = options.vllm_importance_sampling_mode,
          .most = options.vllm_importance_sampling_cap,
          .least = options.vllm_importance_sampling_clip_min};
}

}  // namespace

SamplerComparison::SamplerComparison(const GrpoOptions& options)
    : options_(options), importance_(importance_options(options)), metrics_(importance_) {}

void SamplerComparison::correct(Rollout& rollout, const TrainerLogps& trainer_logps, const CheckExact& check) {
  std::vector<std::size_t> compared;                                // samples
  std::vector<PolicySample> samples;                                // [compared]
  std::vector<std::vector<float>> trainer(rollout.samples.size());  // [samples][tokens]
  for (std::size_t s = 0; s < rollout.samples.size(); ++s) {
    if (options_.samples_as_trained() && options_.max_staleness > 0 && rollout.stale[s] == 0) {
      trainer[s] = rollout.samples[s].logps;
    } else {
      compared.push_back(s);
      samples.push_back(rollout.samples[s]);
    }
  }
  std::vector<std::vector<float>> computed = trainer_logps(samples);
  for (std::size_t i = 0; i < compared.size(); ++i) trainer[compared[i]] = std::move(computed[i]);
  for (std::size_t s = 0; s < trainer.size(); ++s) {
    PolicySample& sample = rollout.samples[s];
    for (std::size_t t = rollout.stale[s]; t < trainer[s].size(); ++t)
      check(static_cast<double>(trainer[s][t]) - static_cast<double>(sample.logps[t]));
    std::vector<float> ratios = importance_ratios(trainer[s], sample.logps, importance_);
    metrics_.add(trainer[s], sample.logps, ratios, options_.mask_truncated_completions && sample.truncated);
    if (options_.corrects_importance()) sample.importance = std::move(ratios);
    sample.logps = std::move(trainer[s]);
    tokens_ += static_cast<double>(sample.logps.size());
    stale_tokens_ += static_cast<double>(rollout.stale[s]);
  }
}

void SamplerComparison::record(const Job& job, Rollout& rollout) {
  metrics_.add_ranks(job);
  rollout.importance = metrics_.values();
  if (options_.max_staleness == 0) return;
  std::array<double, 2> tokens{stale_tokens_, tokens_};
  job.sum(tokens);
  rollout.importance.emplace_back("sampling/stale_tokens", tokens[0] / std::max(tokens[1], 1.0));
}

}  // namespace hone
