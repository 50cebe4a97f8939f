#include "rl/grpo_task.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/random.h"
#include "rl/idle_cause.h"
#include "rl/job_rollout.h"
#include "rl/reference_mix.h"
#include "rl/sample_json.h"
#include "rl/sample_share.h"

namespace hone {
namespace {

RolloutOptions rollout_options(const GrpoRun& run, const RunProgress& progress) {
  const GrpoOptions& options = run.options;
  SamplingParams sampling;
  sampling.temperature = options.temperature;
  sampling.top_p = options.top_p;
  sampling.top_k = options.top_k.value_or(0);
  sampling.min_p = options.min_p.value_or(0);
  sampling.repetition_penalty = options.repetition_penalty;
  sampling.max_tokens = options.max_completion_length;
  sampling.stop_token_ids = run.stop_token_ids;
  return {.num_generations = options.num_generations,
          .sampling = std::move(sampling),
          .scale = options.scale_rewards,
          .reward_weights = run.reward_weights,
          .columns = prompt_columns(options),
          .progress = progress};
}

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void append(MetricValues& values, const NamedValues& more) { values.insert(values.end(), more.begin(), more.end()); }

}  // namespace

GrpoTask::GrpoTask(const GrpoRun& run, Workspace& workspace, RolloutSource& source)
    : run_(run),
      workspace_(workspace),
      source_(source),
      runner_(run, workspace),
      order_(run.prompts.size(), run.batch.prompts, run.options.order_seed(), run.options.shuffle_dataset) {}

std::int64_t GrpoTask::micro_steps_per_epoch(const GrpoOptions& options, const GrpoBatch& batch, std::int64_t prompts) {
  return prompts / batch.prompts * batch.steps_per_generation * options.num_iterations;
}

std::vector<std::uint32_t> GrpoTask::prompts_of(std::int64_t generation) {
  const std::int64_t per_epoch = order_.chunks_per_epoch();
  return order_.at({generation / per_epoch, generation % per_epoch});
}

std::function<std::uint64_t(std::size_t)> GrpoTask::seeds_of(std::string_view use, std::int64_t number) const {
  const RandomStream seeds(static_cast<std::uint64_t>(run_.options.seed), use, static_cast<std::uint64_t>(number));
  return
      [seeds](std::size_t index) { return (std::uint64_t{seeds.bits(2 * index)} << 32) | seeds.bits(2 * index + 1); };
}

bool GrpoTask::begins_ahead() const {
  // The last generation of a run has none after it.
  const std::int64_t batches = run_.batch.steps_per_generation * run_.options.num_iterations;
  const std::int64_t all = run_.total_steps * run_.options.gradient_accumulation_steps;
  return run_.options.max_staleness > 0 && (generations_ + 1) * batches < all;
}

std::span<const DrawnTokens> GrpoTask::begun_completions(std::span<const std::uint32_t> chosen) const {
  if (begun_.completions.empty()) return {};
  const std::int64_t count = std::ssize(chosen) * run_.options.num_generations;
  if (std::ssize(begun_.completions) != count || begun_.prompts != fingerprint_of(run_.prompts, chosen)) {
    log_info("the checkpoint has begun completions of other prompts than this run's: they are drawn whole");
    return {};
  }
  const auto is_whole = [&](const DrawnTokens& drawn) {
    return std::ssize(drawn.tokens) == run_.options.max_completion_length ||
           (!drawn.tokens.empty() &&
            std::ranges::find(run_.stop_token_ids, drawn.tokens.back()) != run_.stop_token_ids.end());
  };
  if (run_.options.rollout == RolloutKind::kServer && !std::ranges::all_of(begun_.completions, is_whole)) {
    log_info("the checkpoint has begun completions, which a server does not continue: they are drawn whole");
    return {};
  }
  return begun_.completions;
}

void GrpoTask::finish_ahead() {
  if (!is_ahead_) return;
  const auto draw = [&] {
    std::vector<DrawnTokens> drawn;
    for (Completion& completion : source_.finish_ahead())
      drawn.push_back({std::move(completion.tokens), std::move(completion.logps)});
    return drawn;
  };
  set_begun({.completions = draw_together(run_.job, draw), .prompts = begun_.prompts});
  is_ahead_ = false;
}

void GrpoTask::set_begun(BegunGeneration begun) {
  begun_ = std::move(begun);
  begun_tensors_ = begun_.tensors();
}

RolloutPrompts GrpoTask::own_part(const RolloutPrompts& all) const {
  const IndexRange share = share_of_rank(all.chosen.size(), run_.job);
  const auto generations = static_cast<std::size_t>(run_.options.num_generations);
  const std::size_t before = share.first * generations;
  return {.prompts = all.prompts,
          .chosen = all.chosen.subspan(share.first, share.count),
          .seed_of = [seed_of = all.seed_of, before](std::size_t index) { return seed_of(before + index); },
          .begun = all.begun.empty() ? all.begun : all.begun.subspan(before, share.count * generations)};
}

Rollout GrpoTask::sample(const RolloutPrompts& now, const RolloutPrompts* next) {
  const RolloutOptions options = rollout_options(run_, {step_, run_.total_steps, epoch()});
  const RolloutPrompts own = own_part(now);
  const std::optional<RolloutPrompts> own_next = next != nullptr ? std::optional(own_part(*next)) : std::nullopt;
  const Clock::time_point start = Clock::now();
  const bool draws = next != nullptr || now.begun.empty() || run_.options.rollout == RolloutKind::kOwn;
  if (draws) source_.update_weights();
  const double weights_seconds = seconds_since(start);
  SamplerComparison comparison(run_.options);
  // Rollouts and training may share memory, so each phase is announced to the workspace.
  Rollout all = roll_out_together(run_.job, run_.rewards.size(), options, [&] {
    workspace_.enter(Region::kRollout);
    Rollout rollout = roll_out_in_group(
        run_.job, run_.rewards.size(), options,
        [&] { return roll_out(source_, run_.tokenizer, own, run_.rewards, options, own_next ? &*own_next : nullptr); },
        [&] { source_.follow(); });
    workspace_.enter(Region::kTrain);
    const Clock::time_point sampled = Clock::now();
    correct_importance(rollout, comparison);
    rollout.logprob_seconds = seconds_since(sampled);
    const Clock::time_point compared = Clock::now();
    add_reference_logps(rollout.samples);
    rollout.reference_seconds = seconds_since(compared);
    return rollout;
  });
  all.weights_seconds = weights_seconds;
  if (run_.options.needs_trainer_logps()) comparison.record(run_.job, all);
  return all;
}

Rollout GrpoTask::generate() {
  finish_ahead();
  const std::vector<std::uint32_t> chosen = prompts_of(generations_);
  const bool ahead = begins_ahead();
  const std::vector<std::uint32_t> chosen_next = ahead ? prompts_of(generations_ + 1) : std::vector<std::uint32_t>();
  const RolloutPrompts now{.prompts = run_.prompts,
                           .chosen = chosen,
                           .seed_of = seeds_of("rollout", generations_),
                           .begun = begun_completions(chosen)};
  const RolloutPrompts next{
      .prompts = run_.prompts, .chosen = chosen_next, .seed_of = seeds_of("rollout", generations_ + 1)};
  Rollout rollout = sample(now, ahead ? &next : nullptr);
  set_begun({.completions = std::move(rollout.begun_ahead), .prompts = fingerprint_of(run_.prompts, chosen_next)});
  is_ahead_ = ahead && run_.options.rollout == RolloutKind::kServer;
  ++generations_;
  updates_since_generation_ = 0;
  for (const PolicySample& one : rollout.samples) {
    tokens_seen_ += static_cast<std::int64_t>(one.prompt.size() + one.completion.size());
  }
  samples_ = rollout.samples;
  return rollout;
}

void GrpoTask::report(std::span<const Rollout> rollouts, const std::string& name, std::int64_t step) const {
  if (rollouts.empty() || !run_.job.is_first() || run_.options.output_dir.empty()) return;
  write_completions(std::filesystem::path(run_.options.output_dir) / "completions" / (name + ".jsonl"), rollouts,
                    run_.rewards, step);
  if (!run_.options.log_completions) return;
  std::int64_t left = run_.options.num_completions_to_print.value_or(std::numeric_limits<std::int64_t>::max());
  for (const Rollout& rollout : rollouts) {
    for (const ScoredCompletion& judged : rollout.judged) {
      if (left-- > 0) log_info(text_of(name, ", ", to_text(judged, run_.rewards)));
    }
  }
}

std::vector<std::vector<float>> GrpoTask::target_logps(const char* program,
                                                       std::span<const PolicySample> samples) const {
  const PolicyBatch batch = make_policy_batch(samples);
  return completion_values(batch, samples, runner_.target_values(program, batch, "logp"));
}

void GrpoTask::add_reference_logps(std::span<PolicySample> samples) const {
  if (!workspace_.has_program(kReferenceProgram)) return;
  std::vector<std::vector<float>> logps = target_logps(kReferenceProgram, samples);
  for (std::size_t s = 0; s < samples.size(); ++s) samples[s].ref_logps = std::move(logps[s]);
}

void GrpoTask::correct_importance(Rollout& rollout, SamplerComparison& comparison) const {
  if (!run_.options.needs_trainer_logps()) return;
  // Without an update since they were drawn, tokens of the generation before are as fresh as others.
  if (updates_since_generation_ == 0) rollout.stale.assign(rollout.samples.size(), 0);
  comparison.correct(
      rollout, [this](std::span<const PolicySample> samples) { return target_logps(kForwardProgram, samples); },
      [this](double difference) {
        if (run_.options.requires_exact()) check_exact(difference);
      });
}

std::vector<std::size_t> GrpoTask::own_samples(std::span<const PolicySample> samples) const {
  std::vector<std::size_t> lengths;
  lengths.reserve(samples.size());
  for (const PolicySample& sample : samples) lengths.push_back(sample.prompt.size() + sample.completion.size());
  return share_of_samples(lengths, static_cast<std::size_t>(run_.batch.size),
                          static_cast<std::size_t>(run_.job.data_size()),
                          static_cast<std::size_t>(run_.job.data_rank()));
}

PolicyBatch GrpoTask::weigh(std::span<const PolicySample> samples, std::span<const std::size_t> own) const {
  LossNormaliser normaliser{.loss = run_.options.loss_type,
                            .max_completion_length = run_.options.max_completion_length,
                            .mask_truncated = run_.options.mask_truncated_completions};
  normaliser.count(samples);
  std::vector<PolicySample> chosen;
  for (const std::size_t index : own) chosen.push_back(samples[index]);
  PolicyBatch step = make_policy_batch(chosen);
  set_loss_weights(step, chosen, normaliser);
  return step;
}

void GrpoTask::drop_low_entropy(PolicyBatch& step) const {
  if (run_.options.top_entropy_quantile >= 1) return;
  const std::vector<float> entropies = runner_.target_values(kForwardProgram, step, "entropy");
  std::vector<float> unmasked;  // entropies of all tokens of the step with a loss
  for (std::size_t t = 0; t < entropies.size(); ++t) {
    if (step.weights[t] != 0) unmasked.push_back(entropies[t]);
  }
  unmasked = gather_numbers(run_.job, unmasked);
  mask_low_entropy(step, entropies, entropy_threshold(std::move(unmasked), run_.options.top_entropy_quantile));
}

MetricValues GrpoTask::accumulate(std::int64_t step) {
  step_ = step;
  const StepSamples chosen = choose_samples();
  report(chosen.rollouts, text_of("step-", step + 1), step + 1);
  // Weights and entropy threshold depend on the whole step, which is then laid into micro-batches.
  PolicyBatch batch = weigh(step_samples_, own_samples(step_samples_));
  drop_low_entropy(batch);
  const Clock::time_point start = Clock::now();
  PolicyTotals totals = runner_.train(batch, chosen.fresh);
  totals.add_ranks(run_.job);
  const double loss_seconds = seconds_since(start);
  // Before the update, so that the state before the step serves if this fails or is interrupted.
  const Clock::time_point trained = Clock::now();
  finish_ahead();
  const double ahead_seconds = seconds_since(trained);
  flops_ += totals.flops;
  micro_steps_ += run_.options.gradient_accumulation_steps;
  if (!chosen.rollouts.empty()) last_rollout_metrics_ = rollout_metrics(chosen.rollouts, run_.rewards);
  MetricValues values = metrics(totals, chosen.rollouts.empty() ? NamedValues() : last_rollout_metrics_);
  values.emplace_back(kPaddingMetric, totals.padding.share());
  append(values, rollout_times(chosen.rollouts));
  if (run_.options.rollout == RolloutKind::kServer) values.emplace_back("step_time/weights", chosen.weights_seconds());
  if (run_.options.rollout == RolloutKind::kServer && run_.options.max_staleness > 0)
    values.emplace_back("step_time/ahead", ahead_seconds);
  values.emplace_back("step_time/loss", loss_seconds);
  if (run_.options.requires_exact()) check_exact(totals.metrics.largest_difference());
  return values;
}

GrpoTask::StepSamples GrpoTask::choose_samples() {
  StepSamples chosen;
  step_samples_.clear();
  for (std::int64_t i = 0; i < run_.options.gradient_accumulation_steps; ++i) {
    const std::int64_t at = micro_steps_ + i;
    if (at % (run_.batch.steps_per_generation * run_.options.num_iterations) == 0)
      chosen.rollouts.push_back(generate());
    const bool compares =
        !run_.options.needs_trainer_logps() || (run_.options.max_staleness > 0 && run_.options.samples_as_trained());
    chosen.fresh.push_back(updates_since_generation_ == 0 && compares);
    const auto size = static_cast<std::ptrdiff_t>(batch_completions());
    const auto first = samples_.begin() + at % run_.batch.steps_per_generation * size;
    step_samples_.insert(step_samples_.end(), first, first + size);
  }
  return chosen;
}

MetricValues GrpoTask::evaluate(std::int64_t step) {
  if (!run_.eval_prompts) return {};
  step_ = step;
  std::vector<std::uint32_t> all(static_cast<std::size_t>(run_.eval_prompts->size()));
  std::iota(all.begin(), all.end(), 0u);
  std::vector<Rollout> rollouts;
  rollouts.push_back(sample({.prompts = *run_.eval_prompts, .chosen = all, .seed_of = seeds_of("evaluation", 0)}));
  if (run_.options.max_staleness > 0) rollouts[0].importance.clear();  // no token of it is older
  report(rollouts, text_of("eval-step-", step), step);
  const IndexRange share = share_of_rank(rollouts[0].samples.size(), run_.job);
  std::vector<std::size_t> own(share.count);
  std::iota(own.begin(), own.end(), share.first);
  PolicyTotals totals = runner_.evaluate(weigh(rollouts[0].samples, own));
  totals.add_ranks(run_.job);
  MetricValues values = metrics(totals, rollout_metrics(rollouts, run_.rewards));
  for (auto& [name, value] : values) name.insert(0, "eval_");
  return values;
}

MetricValues GrpoTask::metrics(const PolicyTotals& totals, const NamedValues& rollout) const {
  MetricValues values{{"loss", totals.loss}};
  append(values, rollout);
  // With max_staleness sampling/* is about the weights that drew the tokens, not about the trainer itself.
  for (const auto& [name, value] : totals.metrics.values()) {
    if (run_.options.max_staleness == 0 || !name.starts_with("sampling/")) values.emplace_back(name, value);
  }
  totals.figures.append_to(values, 1.0);
  return values;
}

void GrpoTask::check_exact(double difference) const {
  if (difference != 0) {  // also NaN
    throw Defect(text_of("step ", step_ + 1, ": rollout and trainer differ by ", difference,
                         " in a log-probability although exact_logprobs is on"));
  }
}

std::vector<std::string> GrpoTask::shown_metrics() const {
  std::vector<std::string> names{"reward", "reward_std"};
  for (const Reward& reward : run_.rewards) names.push_back("rewards/" + reward.metric_name + "/mean");
  names.insert(names.end(), {"completions/mean_length", "completions/clipped_ratio"});
  return names;
}

std::string GrpoTask::idle_cause(const MetricValues&, double grad_norm) const {
  return hone::idle_cause(last_rollout_metrics_, grad_norm, run_.options.max_completion_length);
}

void GrpoTask::after_update(std::int64_t step) {
  ++updates_since_generation_;
  source_.weights_changed();
  const GrpoOptions& options = run_.options;
  if (!options.sync_ref_model || !workspace_.has_store(kReferenceStore)) return;
  if ((step + 1) % options.ref_model_sync_steps == 0) {
    mix_reference(workspace_.store(kWeightStore), workspace_.store(kReferenceStore), options.ref_model_mixup_alpha);
  }
}

double GrpoTask::epoch() const {
  return static_cast<double>(micro_steps_) /
         static_cast<double>(micro_steps_per_epoch(run_.options, run_.batch, run_.prompts.size()));
}

Json GrpoTask::last_batch() const { return to_json(step_samples_); }

Json GrpoTask::state() const {
  const std::int64_t reuse = run_.batch.steps_per_generation * run_.options.num_iterations;
  const bool in_use = micro_steps_ % reuse != 0;  // the current generation has batches left
  Json state{{"micro_steps", micro_steps_},
             {"generations", generations_},
             {"updates_since_generation", updates_since_generation_},
             {"tokens_seen", tokens_seen_},
             {"samples", in_use ? to_json(samples_) : Json::array()}};
  state["batch_completions"] = batch_completions();
  if (!begun_tensors_.empty()) state["begun_prompts"] = begun_.prompts;
  return state;
}

void GrpoTask::restore(const Json& state, std::span<const TaskTensor> tensors) {
  // The batches of another layout may have another size.
  const std::int64_t size = batch_completions();
  const std::int64_t read = state.at("micro_steps").get<std::int64_t>() * state.value("batch_completions", size);
  if (read % size != 0) {
    throw Error("resume_from_checkpoint",
                text_of("the checkpoint was saved after ", read, " completions, which batches of ", size,
                        " (per_device_train_batch_size and processes) do not divide"),
                "resume with the checkpoint's batch keys, or from another checkpoint");
  }
  micro_steps_ = read / size;
  generations_ = state.at("generations").get<std::int64_t>();
  updates_since_generation_ = state.at("updates_since_generation").get<std::int64_t>();
  tokens_seen_ = state.at("tokens_seen").get<std::int64_t>();
  samples_ = samples_from(state.at("samples"));
  if (run_.options.max_staleness == 0 && !tensors.empty())
    log_info("max_staleness is 0: what the checkpoint has begun of the next generation is drawn again");
  set_begun(run_.options.max_staleness == 0 ? BegunGeneration()
                                            : BegunGeneration::from(tensors, state.value("begun_prompts", "")));
  const std::int64_t reuse = run_.batch.steps_per_generation * run_.options.num_iterations;
  if (micro_steps_ % reuse != 0 && std::ssize(samples_) != run_.batch.completions) {
    throw Error("resume_from_checkpoint",
                text_of("the checkpoint was saved within a generation, of which it holds ", samples_.size(),
                        " completions; a generation of this run has ", run_.batch.completions),
                "resume with the checkpoint's batch keys, or from another checkpoint");
  }
}

}  // namespace hone
