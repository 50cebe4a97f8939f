#include "rl/policy_batch.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace hone {
namespace {

// Returns the first row that predicts the completion of a sample: that of the last prompt token. document: first row of
// the sample.
std::size_t first_row(std::size_t document, const PolicySample& sample) { return document + sample.prompt.size() - 1; }

}  // namespace

PolicyBatch make_policy_batch(std::span<const PolicySample> samples) {
  PolicyBatch result;
  HostBatch& batch = result.batch;
  const bool with_reference = !samples.empty() && !samples[0].ref_logps.empty();
  for (const PolicySample& sample : samples) {
    HONE_ASSERT(!sample.prompt.empty() && sample.logps.size() == sample.completion.size(), "a sample of ",
                sample.prompt.size(), " and ", sample.completion.size(), " tokens");
    HONE_ASSERT(sample.importance.empty() || sample.importance.size() == sample.completion.size(),
                sample.importance.size(), " ratios of ", sample.completion.size(), " tokens");
    const std::size_t begin = batch.tokens.size();
    batch.tokens.insert(batch.tokens.end(), sample.prompt.begin(), sample.prompt.end());
    batch.tokens.insert(batch.tokens.end(), sample.completion.begin(), sample.completion.end());
    const std::size_t end = batch.tokens.size();
    HONE_ASSERT(end <= std::numeric_limits<std::int32_t>::max(), end, " tokens in a step");
    batch.cu_seqlens.push_back(static_cast<std::int32_t>(end));
    batch.targets.resize(end, -1);
    batch.loss_weights.resize(end, 0.0f);
    result.old_logps.resize(end, 0.0f);
    result.advantages.resize(end, 0.0f);
    result.loss_advantages.resize(end, 0.0f);
    if (with_reference) result.ref_logps.resize(end, 0.0f);
    for (std::size_t i = begin; i < end; ++i) batch.positions.push_back(static_cast<std::int32_t>(i - begin));
    for (std::size_t i = 0; i < sample.completion.size(); ++i) {
      const std::size_t row = first_row(begin, sample) + i;
      batch.targets[row] = sample.completion[i];
      batch.loss_weights[row] = 1.0f;
      result.old_logps[row] = sample.logps[i];
      result.advantages[row] = static_cast<float>(sample.advantage);
      result.loss_advantages[row] = result.advantages[row] * (sample.importance.empty() ? 1.0f : sample.importance[i]);
      if (with_reference) result.ref_logps[row] = sample.ref_logps[i];
    }
    batch.target_tokens += static_cast<std::int64_t>(sample.completion.size());
  }
  result.weights.assign(batch.tokens.size(), 0.0f);
  return result;
}

PolicyBatch samples_of(const PolicyBatch& batch, std::size_t begin, std::size_t end) {
  const std::int32_t first = batch.batch.cu_seqlens.at(begin);
  const std::int32_t last = batch.batch.cu_seqlens.at(end);
  const auto part = [&](const std::vector<float>& of) {
    return of.empty() ? of : std::vector<float>(of.begin() + first, of.begin() + last);
  };
  return {.batch = documents_of(batch.batch, begin, end),
          .old_logps = part(batch.old_logps),
          .ref_logps = part(batch.ref_logps),
          .advantages = part(batch.advantages),
          .loss_advantages = part(batch.loss_advantages),
          .weights = part(batch.weights)};
}

PolicyBatch samples_of(const PolicyBatch& batch, std::span<const std::size_t> chosen) {
  PolicyBatch result;
  for (const std::size_t sample : chosen) {
    const PolicyBatch one = samples_of(batch, sample, sample + 1);
    append_batch(result.batch, one.batch);
    const auto append = [](std::vector<float>& to, const std::vector<float>& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(result.old_logps, one.old_logps);
    append(result.ref_logps, one.ref_logps);
    append(result.advantages, one.advantages);
    append(result.loss_advantages, one.loss_advantages);
    append(result.weights, one.weights);
  }
  return result;
}

GradientSplit split_by_gradient(const PolicyBatch& batch, bool other_terms) {
  GradientSplit split;
  const std::vector<std::int32_t>& starts = batch.batch.cu_seqlens;
  for (std::size_t s = 0; s + 1 < starts.size(); ++s) {
    bool counts = other_terms;
    for (auto t = static_cast<std::size_t>(starts[s]); t < static_cast<std::size_t>(starts[s + 1]); ++t) {
      counts = counts || (batch.weights[t] != 0 && batch.loss_advantages[t] != 0);
    }
    (counts ? split.with_gradient : split.without_gradient).push_back(s);
  }
  return split;
}

std::vector<std::vector<float>> completion_values(const PolicyBatch& batch, std::span<const PolicySample> samples,
                                                  std::span<const float> values) {
  std::vector<std::vector<float>> result;
  for (std::size_t s = 0; s < samples.size(); ++s) {
    const std::size_t row = first_row(static_cast<std::size_t>(batch.batch.cu_seqlens[s]), samples[s]);
    const std::span<const float> part = values.subspan(row, samples[s].completion.size());
    result.emplace_back(part.begin(), part.end());
  }
  return result;
}

void LossNormaliser::count(std::span<const PolicySample> step) {
  for (const PolicySample& sample : step) {
    ++samples;
    if (!(mask_truncated && sample.truncated)) tokens += static_cast<std::int64_t>(sample.completion.size());
  }
}

double LossNormaliser::weight(const PolicySample& sample) const {
  if (mask_truncated && sample.truncated) return 0;
  const auto all = static_cast<double>(std::max<std::int64_t>(samples, 1));
  switch (loss) {
    case GrpoLoss::kGrpo:
      return 1.0 / (all * static_cast<double>(std::max<std::size_t>(sample.completion.size(), 1)));
    case GrpoLoss::kDrGrpo:
      return 1.0 / (all * static_cast<double>(max_completion_length));
    case GrpoLoss::kBnpo:
    case GrpoLoss::kDapo:
    case GrpoLoss::kCispo:
      break;  // one normaliser for all tokens of the step
  }
  return 1.0 / static_cast<double>(std::max<std::int64_t>(tokens, 1));
}

void set_loss_weights(PolicyBatch& batch, std::span<const PolicySample> samples, const LossNormaliser& normaliser) {
  for (std::size_t s = 0; s < samples.size(); ++s) {
    const auto begin = static_cast<std::size_t>(batch.batch.cu_seqlens[s]);
    const auto weight = static_cast<float>(normaliser.weight(samples[s]));
    for (std::size_t i = 0; i < samples[s].completion.size(); ++i) {
      batch.weights[first_row(begin, samples[s]) + i] = weight;
    }
  }
}

double entropy_threshold(std::vector<float> entropies, double share) {
  if (entropies.empty()) return 0;
  std::sort(entropies.begin(), entropies.end());
  const double at = (1 - share) * static_cast<double>(entropies.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const auto low = static_cast<double>(entropies[below]);
  const auto high = static_cast<double>(entropies[std::min(below + 1, entropies.size() - 1)]);
  return low + (at - static_cast<double>(below)) * (high - low);
}

void mask_low_entropy(PolicyBatch& batch, std::span<const float> entropies, double threshold) {
  for (std::size_t t = 0; t < batch.loss_advantages.size(); ++t) {
    if (static_cast<double>(entropies[t]) < threshold) batch.loss_advantages[t] = 0;
  }
}

}  // namespace hone
