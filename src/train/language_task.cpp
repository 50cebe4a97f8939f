#include "train/language_task.h"

#include <algorithm>
#include <cmath>

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

MetricValues LanguageTask::accumulate(std::int64_t step) {
  // The last step of an epoch takes the remaining micro-batches. All micro-batches are read before the first one runs,
  // because the loss weight depends on the number of target tokens in the step.
  const std::int64_t left = setup_.batches.batches_per_epoch() - setup_.batches.position().index;
  micro_batches_.clear();
  std::int64_t targets = 0;
  for (std::int64_t i = 0; i < std::min(left, setup_.gradient_accumulation_steps); ++i) {
    micro_batches_.push_back(setup_.batches.next());
    targets += micro_batches_.back().target_tokens;
    tokens_seen_ += micro_batches_.back().token_count();
    flops_ += setup_.work.flops(micro_batches_.back());
  }
  const double weight = targets > 0 ? 1.0 / static_cast<double>(targets) : 0.0;
  LossLaunches launches(setup_.training, micro_batches_.size(), setup_.seed, step);
  for (const HostBatch& batch : micro_batches_) launches.launch(batch, weight);
  const LossSums sums = launches.sums();
  return means(sums, 1.0, "");
}

double LanguageTask::epoch() const {
  const LoaderPosition position = setup_.batches.position();
  return static_cast<double>(position.epoch) +
         static_cast<double>(position.index) / static_cast<double>(setup_.batches.batches_per_epoch());
}

MetricValues LanguageTask::evaluate(std::int64_t) {
  if (setup_.eval_batches == nullptr) return {};
  const std::int64_t count = setup_.eval_batches->batches_per_epoch();
  LossLaunches launches(*setup_.evaluation, static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) launches.launch(setup_.eval_batches->batch_at({0, i}), 1.0);
  const LossSums sums = launches.sums();
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
