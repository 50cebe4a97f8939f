#include "rl/grpo_task.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/json_value.h"
#include "core/log.h"
#include "core/random.h"
#include "rl/importance.h"
#include "rl/job_rollout.h"
#include "rl/reference_mix.h"
#include "rl/sample_json.h"

namespace hone {
namespace {

ImportanceOptions importance_options(const GrpoOptions& options) {
  return {.mode = options.vllm_importance_sampling_mode,
          .most = options.vllm_importance_sampling_cap,
          .least = options.vllm_importance_sampling_clip_min};
}

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

// Returns the numbers of all ranks of a job, in their order.
std::vector<float> gathered(const std::vector<float>& own, const Job& job) {
  if (job.size() == 1) return own;
  std::vector<float> all;
  for (const std::string& bytes : job.peers()->gather({reinterpret_cast<const char*>(own.data()), own.size() * 4})) {
    const std::size_t before = all.size();
    all.resize(before + bytes.size() / sizeof(float));
    std::memcpy(all.data() + before, bytes.data(), bytes.size());
  }
  return all;
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

void append(MetricValues& values, const NamedValues& more) { values.insert(values.end(), more.begin(), more.end()); }

// Adds the seconds that a step spent in generation, in rewards and in its loss and gradient. The rest of step_time is
// the update, log-probabilities of the reference, saving and logging.
void add_times(std::span<const Rollout> rollouts, double loss_seconds, MetricValues& values) {
  double generation = 0;
  double rewards = 0;
  double reference = 0;
  for (const Rollout& rollout : rollouts) {
    generation += rollout.generation_seconds;
    rewards += rollout.reward_seconds;
    reference += rollout.reference_seconds;
  }
  values.emplace_back("step_time/generation", generation);
  values.emplace_back("step_time/rewards", rewards);
  values.emplace_back("step_time/reference", reference);
  values.emplace_back("step_time/loss", loss_seconds);
}

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

Rollout GrpoTask::sample(const PromptSet& prompts, std::span<const std::uint32_t> chosen, std::string_view use,
                         std::int64_t number) {
  const RolloutOptions options = rollout_options(run_, {step_, run_.total_steps, epoch()});
  const RandomStream seeds(static_cast<std::uint64_t>(run_.options.seed), use, static_cast<std::uint64_t>(number));
  const auto seed_of = [&](std::size_t index) {
    return (std::uint64_t{seeds.bits(2 * index)} << 32) | seeds.bits(2 * index + 1);
  };
  // Rollouts and training may share memory, so each phase is announced to the workspace.
  const IndexRange share = share_of_rank(chosen.size(), run_.job);
  const std::size_t before = share.first * static_cast<std::size_t>(options.num_generations);
  return roll_out_together(run_.job, run_.rewards.size(), options, [&] {
    workspace_.enter(Region::kRollout);
    Rollout rollout = roll_out(source_, run_.tokenizer, prompts, chosen.subspan(share.first, share.count), run_.rewards,
                               options, [&](std::size_t index) { return seed_of(before + index); });
    workspace_.enter(Region::kTrain);
    correct_importance(rollout);
    const Clock::time_point start = Clock::now();
    add_reference_logps(rollout.samples);
    rollout.reference_seconds = seconds_since(start);
    return rollout;
  });
}

Rollout GrpoTask::generate() {
  const std::int64_t per_epoch = order_.chunks_per_epoch();
  const std::vector<std::uint32_t> chosen = order_.at({generations_ / per_epoch, generations_ % per_epoch});
  Rollout rollout = sample(run_.prompts, chosen, "rollout", generations_);
  ++generations_;
  updates_since_generation_ = 0;
  for (const PolicySample& one : rollout.samples) {
    tokens_seen_ += static_cast<std::int64_t>(one.prompt.size() + one.completion.size());
  }
  samples_ = rollout.samples;
  return rollout;
}

void GrpoTask::report(std::span<const Rollout> rollouts, const std::string& name, std::int64_t step) const {
  if (rollouts.empty() || !run_.job.is_first()) return;
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

void GrpoTask::correct_importance(Rollout& rollout) const {
  const GrpoOptions& options = run_.options;
  if (!options.needs_trainer_logps()) return;
  const ImportanceOptions importance = importance_options(options);
  ImportanceMetrics metrics(importance);
  std::vector<std::vector<float>> logps = target_logps(kForwardProgram, rollout.samples);
  for (std::size_t s = 0; s < logps.size(); ++s) {
    PolicySample& sample = rollout.samples[s];
    std::vector<float> ratios = importance_ratios(logps[s], sample.logps, importance);
    metrics.add(logps[s], sample.logps, ratios, options.mask_truncated_completions && sample.truncated);
    if (options.corrects_importance()) sample.importance = std::move(ratios);
    sample.logps = std::move(logps[s]);
  }
  rollout.importance = metrics.values();
}

std::vector<std::size_t> GrpoTask::own_samples(std::size_t samples) const {
  const auto size = static_cast<std::size_t>(run_.batch.size);
  const std::size_t batch = size * static_cast<std::size_t>(run_.job.size());
  std::vector<std::size_t> own;
  for (std::size_t first = size * static_cast<std::size_t>(run_.job.rank()); first < samples; first += batch) {
    for (std::size_t i = 0; i < size; ++i) own.push_back(first + i);
  }
  return own;
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
  unmasked = gathered(unmasked, run_.job);
  mask_low_entropy(step, entropies, entropy_threshold(std::move(unmasked), run_.options.top_entropy_quantile));
}

MetricValues GrpoTask::accumulate(std::int64_t step) {
  step_ = step;
  const StepSamples chosen = choose_samples();
  report(chosen.rollouts, text_of("step-", step + 1), step + 1);
  // Weights and entropy threshold depend on the whole step, which is then laid into micro-batches.
  PolicyBatch batch = weigh(step_samples_, own_samples(step_samples_.size()));
  drop_low_entropy(batch);
  const Clock::time_point start = Clock::now();
  PolicyTotals totals = runner_.train(batch, chosen.fresh);
  totals.add_ranks(run_.job);
  const double loss_seconds = seconds_since(start);
  flops_ += totals.flops;
  micro_steps_ += run_.options.gradient_accumulation_steps;
  if (!chosen.rollouts.empty()) last_rollout_metrics_ = rollout_metrics(chosen.rollouts, run_.rewards);
  MetricValues values = metrics(totals, chosen.rollouts.empty() ? NamedValues() : last_rollout_metrics_);
  values.emplace_back(kPaddingMetric, totals.padding.share());
  add_times(chosen.rollouts, loss_seconds, values);
  if (run_.options.exact_logprobs && run_.options.rollout == RolloutKind::kOwn) check_exact(values, step);
  return values;
}

GrpoTask::StepSamples GrpoTask::choose_samples() {
  StepSamples chosen;
  step_samples_.clear();
  for (std::int64_t i = 0; i < run_.options.gradient_accumulation_steps; ++i) {
    const std::int64_t at = micro_steps_ + i;
    if (at % (run_.batch.steps_per_generation * run_.options.num_iterations) == 0)
      chosen.rollouts.push_back(generate());
    chosen.fresh.push_back(updates_since_generation_ == 0 && !run_.options.needs_trainer_logps());
    const auto size = static_cast<std::ptrdiff_t>(run_.batch.size * run_.job.size());
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
  rollouts.push_back(sample(*run_.eval_prompts, all, "evaluation", 0));
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
  append(values, totals.metrics.values());
  totals.figures.append_to(values, 1.0);
  return values;
}

void GrpoTask::check_exact(const MetricValues& values, std::int64_t step) const {
  for (const auto& [name, value] : values) {
    if (name == "sampling/sampling_logp_difference/max" && value != 0) {
      throw Defect(text_of("step ", step + 1, ": rollout and trainer differ by ", value,
                           " in a log-probability although exact_logprobs is on"));
    }
  }
}

std::vector<std::string> GrpoTask::shown_metrics() const {
  std::vector<std::string> names{"reward", "reward_std"};
  for (const Reward& reward : run_.rewards) names.push_back("rewards/" + reward.metric_name + "/mean");
  names.insert(names.end(), {"completions/mean_length", "completions/clipped_ratio"});
  return names;
}

std::string GrpoTask::idle_cause(const MetricValues&, double grad_norm) const {
  const auto value_of = [&](std::string_view name) {
    const auto at = std::ranges::find(last_rollout_metrics_, name, &std::pair<std::string, double>::first);
    return at == last_rollout_metrics_.end() ? std::numeric_limits<double>::quiet_NaN() : at->second;
  };
  const double clipped = value_of("completions/clipped_ratio");
  const std::string cut =
      clipped > 0 ? text_of("; ", std::llround(100 * clipped), "% of the completions are cut at max_completion_length ",
                            run_.options.max_completion_length)
                  : std::string();
  if (value_of("reward") == 0 && value_of("reward_std") == 0) {
    return "every reward is 0: the problems are too hard for this model, or its answers are not where the rewards look "
           "(`hone grpo --show` prints completions with their rewards)" +
           cut;
  }
  if (value_of("frac_reward_zero_std") == 1) {
    return "all completions of a prompt have the same reward, so every advantage is 0: the problems are too easy or "
           "too hard, temperature is too low, or the rewards do not distinguish completions" +
           cut;
  }
  if (grad_norm == 0) {
    return "the gradient is 0: every completion has an advantage of 0 or is masked "
           "(mask_truncated_completions)" +
           cut;
  }
  return {};
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
  return {{"micro_steps", micro_steps_},
          {"generations", generations_},
          {"updates_since_generation", updates_since_generation_},
          {"tokens_seen", tokens_seen_},
          {"samples", in_use ? to_json(samples_) : Json::array()}};
}

void GrpoTask::restore(const Json& state) {
  micro_steps_ = state.at("micro_steps").get<std::int64_t>();
  generations_ = state.at("generations").get<std::int64_t>();
  updates_since_generation_ = state.at("updates_since_generation").get<std::int64_t>();
  tokens_seen_ = state.at("tokens_seen").get<std::int64_t>();
  samples_ = samples_from(state.at("samples"));
  const std::int64_t reuse = run_.batch.steps_per_generation * run_.options.num_iterations;
  if (micro_steps_ % reuse != 0 && std::ssize(samples_) != run_.batch.completions) {
    throw Error("resume_from_checkpoint",
                text_of("the checkpoint was saved within a generation, of which it holds ", samples_.size(),
                        " completions; a generation of this run has ", run_.batch.completions),
                "resume with the checkpoint's batch keys, or from another checkpoint");
  }
}

}  // namespace hone
