#include "train/language_task.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <span>

#include "core/error.h"
#include "core/json_value.h"
#include "data/context_share.h"

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

std::vector<HostBatch> next_micro_batches(BatchLoader& loader, std::int64_t batches_per_step, BatchLimits limits,
                                          const Job& job) {
  const LoaderPosition start = loader.position();
  const std::int64_t left = loader.batches_per_epoch() - start.index;
  const std::int64_t first = std::min(left, job.reader() * batches_per_step);
  const std::int64_t end = std::min(left, first + batches_per_step);
  std::vector<HostBatch> sequences;
  for (std::int64_t i = first; i < end; ++i) {
    std::ranges::move(loader.sequences_at({start.epoch, start.index + i}), std::back_inserter(sequences));
  }
  loader.skip(job.readers() * batches_per_step);
  std::vector<HostBatch> batches = lay_micro_batches(sequences, limits);
  if (job.context_size() > 1) {
    for (HostBatch& batch : batches) batch = context_share(batch, job.context_rank(), job.context_size());
  }
  return batches;
}

std::vector<std::int64_t> agree_on_launches(std::vector<HostBatch>& micro_batches, const Job& job) {
  std::array<double, 1> most{static_cast<double>(std::max<std::size_t>(micro_batches.size(), 1))};
  job.maximum(most);
  HostBatch empty;
  empty.cu_seqlens = {0};
  micro_batches.resize(static_cast<std::size_t>(most[0]), empty);
  std::vector<double> tokens;
  tokens.reserve(micro_batches.size());
  for (const HostBatch& batch : micro_batches) tokens.push_back(static_cast<double>(batch.token_count()));
  job.maximum(tokens);
  return {tokens.begin(), tokens.end()};
}

namespace {

// Launches micro-batches, in the programs that all ranks of a job run if these communicate. last: programs of the last
// of them, if they are others.
void launch_all(LossLaunches& launches, std::span<const HostBatch> batches, double weight,
                std::span<const std::int64_t> tokens, const std::optional<SizedExecutables>& last = std::nullopt) {
  for (std::size_t i = 0; i < batches.size(); ++i) {
    if (last && i + 1 == batches.size()) launches.continue_with(*last);
    launches.launch(batches[i], weight, tokens.empty() ? 0 : tokens[i]);
  }
}

// Adds the sums of all ranks.
void add_ranks(LossSums& sums, const Job& job) {
  if (job.size() == 1) return;
  std::vector<double> values{sums.loss,          sums.entropy,      sums.hits,
                             sums.target_tokens, sums.padding.rows, sums.padding.tokens};
  job.sum(values);
  sums.loss = values[0];
  sums.entropy = values[1];
  sums.hits = values[2];
  sums.target_tokens = values[3];
  sums.padding = {.rows = values[4], .tokens = values[5]};
  sums.figures.add_ranks(job);
}

}  // namespace

LanguageTask::LanguageTask(Setup setup, Pipeline* pipeline)
    : setup_(std::move(setup)),
      pipeline_(pipeline),
      figures_(ModelFigures::of_last_stage(setup_.training.largest().program(), setup_.job)) {
  if (!setup_.evaluation) return;
  eval_figures_ = ModelFigures::of_last_stage(setup_.evaluation->largest().program(), setup_.job);
}

MetricValues LanguageTask::accumulate(std::int64_t step) {
  // All micro-batches are read before the first one runs, because the loss weight depends on the number of target
  // tokens in the step.
  micro_batches_ = next_micro_batches(setup_.batches, setup_.gradient_accumulation_steps, setup_.limits, setup_.job);
  std::array<double, 2> totals{};  // target tokens and tokens of the step
  auto& [targets, tokens] = totals;
  std::array<double, 1> flops{};
  for (const HostBatch& batch : micro_batches_) {
    targets += static_cast<double>(batch.target_tokens);
    tokens += static_cast<double>(batch.token_count());
    flops[0] += setup_.work.flops(batch);
  }
  setup_.job.sum(totals);
  setup_.job.sum_ranks(flops);
  tokens_seen_ += static_cast<std::int64_t>(tokens);
  flops_ += flops[0];
  const double weight = targets > 0 ? 1.0 / targets : 0.0;
  std::vector<std::int64_t> tokens_of_launches;
  if (setup_.training_communicates) tokens_of_launches = agree_on_launches(micro_batches_, setup_.job);
  LossSums sums = launch_step(step, weight, tokens_of_launches);
  if (!setup_.job.is_last_stage()) sums.figures = figures_;
  add_ranks(sums, setup_.job);
  MetricValues values = means(sums, 1.0, "");
  values.emplace_back(kPaddingMetric, sums.padding.share());
  return values;
}

LossSums LanguageTask::launch_step(std::int64_t step, double weight, std::span<const std::int64_t> tokens) {
  const std::int64_t first = setup_.job.data_rank() * kMostLaunchesOfRank;
  if (pipeline_ != nullptr) {
    return pipeline_->train(micro_batches_, weight, {.seed = setup_.seed, .step = step, .first = first});
  }
  if (setup_.quantization != nullptr) setup_.quantization->run();
  LossLaunches launches(setup_.training, micro_batches_.size(), setup_.seed, step, first);
  launch_all(launches, micro_batches_, weight, tokens, setup_.summing);
  return launches.sums();
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
  sums.figures = eval_figures_;
  while (loader.position().epoch == 0) {
    std::vector<HostBatch> batches = next_micro_batches(loader, kEvaluationBatches, setup_.eval_limits, setup_.job);
    std::vector<std::int64_t> tokens;
    if (setup_.evaluation_communicates) tokens = agree_on_launches(batches, setup_.job);
    if (pipeline_ != nullptr) {
      pipeline_->evaluate(batches, sums);
      continue;
    }
    LossLaunches launches(*setup_.evaluation, batches.size());
    launch_all(launches, batches, 1.0, tokens);
    launches.add_to(sums);
  }
  add_ranks(sums, setup_.job);
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

void LanguageTask::restore(const Json& state, std::span<const TaskTensor>) {
  setup_.batches.restore(state.at("data"));
  tokens_seen_ = state.at("tokens_seen").get<std::int64_t>();
}

}  // namespace hone
