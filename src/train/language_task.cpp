#include "train/language_task.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/error.h"
#include "core/json_value.h"

namespace hone {
namespace {

// Returns the means over target tokens and the statistics of the model. Losses are divided by `divisor`.
MetricValues means(const LossSums& sums, double divisor, const std::string& prefix) {
  const double tokens = std::max(sums.target_tokens, 1.0);
  MetricValues values{
      {"loss", sums.loss / divisor}, {"entropy", sums.entropy / tokens}, {"mean_token_accuracy", sums.hits / tokens}};
  sums.figures.append_to(values, divisor);
  for (auto& [name, value] : values) name.insert(0, prefix);
  return values;
}

}  // namespace

std::vector<HostBatch> next_micro_batches(BatchLoader& loader, std::int64_t batches_per_step, BatchLimits limits) {
  const std::int64_t left = loader.batches_per_epoch() - loader.position().index;
  std::vector<HostBatch> sequences;
  for (std::int64_t i = 0; i < std::min(left, batches_per_step); ++i) {
    std::ranges::move(loader.next_sequences(), std::back_inserter(sequences));
  }
  return lay_micro_batches(sequences, limits);
}

MetricValues LanguageTask::accumulate(std::int64_t step) {
  // All micro-batches are read before the first one runs, because the loss weight depends on the number of target
  // tokens in the step.
  micro_batches_ = next_micro_batches(setup_.batches, setup_.gradient_accumulation_steps, setup_.limits);
  std::int64_t targets = 0;
  for (const HostBatch& batch : micro_batches_) {
    targets += batch.target_tokens;
    tokens_seen_ += batch.token_count();
    flops_ += setup_.work.flops(batch);
  }
  const double weight = targets > 0 ? 1.0 / static_cast<double>(targets) : 0.0;
  LossLaunches launches(setup_.training, micro_batches_.size(), setup_.seed, step);
  for (const HostBatch& batch : micro_batches_) launches.launch(batch, weight);
  const LossSums sums = launches.sums();
  MetricValues values = means(sums, 1.0, "");
  values.emplace_back(kPaddingMetric, sums.padding.share());
  return values;
}

std::vector<std::string> LanguageTask::shown_metrics() const { return {"aux_loss", "mtp_loss", "expert_load_cv"}; }

double LanguageTask::epoch() const {
  const LoaderPosition position = setup_.batches.position();
  return static_cast<double>(position.epoch) +
         static_cast<double>(position.index) / static_cast<double>(setup_.batches.batches_per_epoch());
}

MetricValues LanguageTask::evaluate(std::int64_t) {
  if (setup_.eval_batches == nullptr) return {};
  HONE_ASSERT(setup_.evaluation.has_value(), "the run has no program of the evaluation");
  BatchLoader& loader = *setup_.eval_batches;
  loader.seek({});
  LossSums sums;
  sums.figures = ModelFigures(setup_.evaluation->largest().program());
  while (loader.position().epoch == 0) {
    const std::vector<HostBatch> batches = next_micro_batches(loader, kEvaluationBatches, setup_.eval_limits);
    LossLaunches launches(*setup_.evaluation, batches.size());
    for (const HostBatch& batch : batches) launches.launch(batch, 1.0);
    launches.add_to(sums);
  }
  return means(sums, std::max(sums.target_tokens, 1.0), "eval_");
}

Json LanguageTask::last_batch() const {
  Json batches = Json::array();
  for (const HostBatch& batch : micro_batches_) {
    batches.push_back({{"tokens", batch.tokens},
                       {"targets", batch.targets},
                       {"cu_seqlens", batch.cu_seqlens},
                       {"loss_weights", batch.loss_weights}});
  }
  return batches;
}

Json LanguageTask::state() const { return {{"data", setup_.batches.state()}, {"tokens_seen", tokens_seen_}}; }

void LanguageTask::restore(const Json& state) {
  setup_.batches.restore(state.at("data"));
  tokens_seen_ = state.at("tokens_seen").get<std::int64_t>();
}

}  // namespace hone
