#include "rl/grpo_task.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/log.h"
#include "core/parallel.h"
#include "core/random.h"

namespace hone {
namespace {

Json to_json(const PolicySample& sample) {
  return {{"prompt", sample.prompt},       {"completion", sample.completion}, {"logps", sample.logps},
          {"ref_logps", sample.ref_logps}, {"truncated", sample.truncated},   {"advantage", sample.advantage}};
}

PolicySample sample_from(const Json& json) {
  PolicySample sample;
  sample.prompt = json.at("prompt").get<std::vector<TokenId>>();
  sample.completion = json.at("completion").get<std::vector<TokenId>>();
  sample.logps = json.at("logps").get<std::vector<float>>();
  sample.ref_logps = json.at("ref_logps").get<std::vector<float>>();
  sample.truncated = json.at("truncated").get<bool>();
  sample.advantage = json.at("advantage").get<double>();
  return sample;
}

// ref = alpha policy + (1 - alpha) ref, element by element.
void mix_into(const TensorStore& policy, TensorStore& reference, double alpha) {
  const auto a = static_cast<float>(alpha);
  for (const NamedType& tensor : reference.tensors()) {
    const std::int64_t count = tensor.type.elements();
    const auto mix = [&]<class T>() {
      const T* from = reinterpret_cast<const T*>(policy.data(tensor.name));
      T* to = reinterpret_cast<T*>(reference.data(tensor.name));
      parallel_for(count, 16384, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          to[i] = static_cast<T>(a * static_cast<float>(from[i]) + (1.0f - a) * static_cast<float>(to[i]));
        }
      });
    };
    for_floating(tensor.type.dtype, mix);
  }
}

}  // namespace

GrpoTask::GrpoTask(Setup setup)
    : setup_(std::move(setup)),
      loss_(policy_loss_options(setup_.options, setup_.batch)),
      order_(setup_.prompts.size(), setup_.batch.prompts, static_cast<std::uint64_t>(setup_.options.seed),
             setup_.options.shuffle_dataset) {}

std::int64_t GrpoTask::micro_steps_per_epoch(const GrpoOptions& options, const GrpoBatch& batch, std::int64_t prompts) {
  return prompts / batch.prompts * batch.steps_per_generation * options.num_iterations;
}

void GrpoTask::generate(std::int64_t step, MetricValues& metrics) {
  const GrpoOptions& options = setup_.options;
  const std::int64_t per_epoch = order_.chunks_per_epoch();
  const std::vector<std::uint32_t> chosen = order_.at({generations_ / per_epoch, generations_ % per_epoch});
  RolloutOptions rollout_options;
  rollout_options.num_generations = options.num_generations;
  rollout_options.scale = options.scale_rewards;
  rollout_options.reward_weights = setup_.reward_weights;
  SamplingParams& sampling = rollout_options.sampling;
  sampling.temperature = options.temperature;
  sampling.top_p = options.top_p;
  sampling.top_k = options.top_k.value_or(0);
  sampling.min_p = options.min_p.value_or(0);
  sampling.max_tokens = options.max_completion_length;
  sampling.stop_token_ids = setup_.stop_token_ids;
  const RandomStream seeds(static_cast<std::uint64_t>(options.seed), "rollout", static_cast<std::uint64_t>(generations_));
  const auto seed_of = [&](std::size_t sample) { return (std::uint64_t{seeds.bits(2 * sample)} << 32) | seeds.bits(2 * sample + 1); };

  Rollout rollout = roll_out(setup_.engine, setup_.tokenizer, setup_.prompts, chosen, setup_.rewards, rollout_options, seed_of);
  ++generations_;
  updates_since_generation_ = 0;
  metrics = rollout_metrics(rollout, setup_.rewards);
  write_completions(setup_.completions_dir / text_of("step-", step + 1, ".jsonl"), rollout, setup_.rewards, step + 1);
  if (options.log_completions) {
    const auto shown = static_cast<std::size_t>(options.num_completions_to_print.value_or(static_cast<std::int64_t>(rollout.judged.size())));
    for (std::size_t i = 0; i < std::min(shown, rollout.judged.size()); ++i) {
      const JudgedCompletion& judged = rollout.judged[i];
      log_info(text_of("step ", step + 1, ", advantage ", judged.advantage, "\n", judged.prompt_text, judged.completion));
    }
  }
  for (const PolicySample& sample : rollout.samples) {
    tokens_seen_ += static_cast<std::int64_t>(sample.prompt.size() + sample.completion.size());
  }
  samples_ = std::move(rollout.samples);
  if (setup_.reference != nullptr) add_reference_logps();
}

void GrpoTask::add_reference_logps() {
  for (std::int64_t index = 0; index < setup_.batch.steps_per_generation; ++index) {
    const auto first = static_cast<std::size_t>(index * setup_.batch.micro_batch);
    const std::span<const PolicySample> samples = micro_batch(index);
    const PolicyBatch batch = make_policy_batch(samples);
    feed(*setup_.reference, batch.batch);
    setup_.reference->set<std::int32_t>("targets", batch.batch.targets);
    setup_.reference->run();
    std::vector<float> logps(batch.batch.tokens.size());
    setup_.reference->get<float>("logp", logps);
    for (std::size_t s = 0; s < samples.size(); ++s) {
      const std::size_t row = static_cast<std::size_t>(batch.batch.cu_seqlens[s]) + samples[s].prompt.size() - 1;
      const auto begin = logps.begin() + static_cast<std::ptrdiff_t>(row);
      samples_[first + s].ref_logps.assign(begin, begin + static_cast<std::ptrdiff_t>(samples[s].completion.size()));
    }
  }
}

std::span<const PolicySample> GrpoTask::micro_batch(std::int64_t index) const {
  return std::span(samples_).subspan(static_cast<std::size_t>(index * setup_.batch.micro_batch),
                                     static_cast<std::size_t>(setup_.batch.micro_batch));
}

double GrpoTask::run(std::span<const PolicySample> samples, const LossNormaliser& normaliser, PolicyMetrics& metrics) {
  PolicyBatch batch = make_policy_batch(samples);
  set_loss_weights(batch, samples, normaliser);
  Executable& policy = setup_.policy;
  feed(policy, batch.batch);
  policy.set<std::int32_t>("targets", batch.batch.targets);
  policy.set<float>("loss_weights", batch.weights);
  policy.set<float>("advantages", batch.advantages);
  if (loss_.old_logps) policy.set<float>("old_logp", batch.old_logps);
  if (loss_.beta != 0) policy.set<float>("ref_logp", batch.ref_logps);
  policy.run();
  const std::size_t tokens = batch.batch.tokens.size();
  float loss = 0;
  std::vector<float> logps(tokens);
  std::vector<float> entropies(tokens);
  std::vector<float> kls(loss_.beta != 0 ? tokens : 0);
  policy.get<float>("loss", {&loss, 1});
  policy.get<float>("logp", logps);
  policy.get<float>("entropy", entropies);
  if (loss_.beta != 0) policy.get<float>("kl", kls);
  metrics.add(batch, logps, entropies, kls);
  return loss;
}

MetricValues GrpoTask::accumulate(std::int64_t step) {
  const GrpoOptions& options = setup_.options;
  const std::int64_t reuse = setup_.batch.steps_per_generation * options.num_iterations;
  const std::int64_t accumulation = options.gradient_accumulation_steps;
  MetricValues generation_metrics;
  // A generation may end within the step; the normaliser is taken over the micro-batches that it really has.
  std::vector<std::vector<PolicySample>> micro_batches;
  for (std::int64_t i = 0; i < accumulation; ++i) {
    const std::int64_t at = micro_steps_ + i;
    if (at % reuse == 0) generate(step, generation_metrics);
    const auto samples = micro_batch(at % setup_.batch.steps_per_generation);
    micro_batches.emplace_back(samples.begin(), samples.end());
  }
  LossNormaliser normaliser{.loss = options.loss_type,
                            .max_completion_length = options.max_completion_length,
                            .mask_truncated = options.mask_truncated_completions};
  for (const auto& samples : micro_batches) normaliser.count(samples);
  PolicyMetrics policy_metrics({.epsilon = loss_.epsilon,
                                .epsilon_high = loss_.epsilon_high,
                                .beta = loss_.beta,
                                .old_logps = loss_.old_logps,
                                .compare = updates_since_generation_ == 0});
  double loss = 0;
  for (const auto& samples : micro_batches) loss += run(samples, normaliser, policy_metrics);
  micro_steps_ += accumulation;
  MetricValues values{{"loss", loss}};
  values.insert(values.end(), generation_metrics.begin(), generation_metrics.end());
  const NamedValues policy_values = policy_metrics.values();
  values.insert(values.end(), policy_values.begin(), policy_values.end());
  if (options.exact_logprobs) check_exact(values, step);
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

void GrpoTask::after_update(std::int64_t step) {
  ++updates_since_generation_;
  const GrpoOptions& options = setup_.options;
  if (!options.sync_ref_model || setup_.reference_weights == nullptr) return;
  if ((step + 1) % options.ref_model_sync_steps == 0) {
    mix_into(setup_.weights, *setup_.reference_weights, options.ref_model_mixup_alpha);
  }
}

double GrpoTask::epoch() const {
  return static_cast<double>(micro_steps_) /
         static_cast<double>(micro_steps_per_epoch(setup_.options, setup_.batch, setup_.prompts.size()));
}

Json GrpoTask::last_batch() const {
  Json samples = Json::array();
  for (const PolicySample& sample : samples_) samples.push_back(to_json(sample));
  return samples;
}

Json GrpoTask::state() const {
  const std::int64_t reuse = setup_.batch.steps_per_generation * setup_.options.num_iterations;
  Json state{{"micro_steps", micro_steps_},
             {"generations", generations_},
             {"updates_since_generation", updates_since_generation_},
             {"tokens_seen", tokens_seen_},
             {"samples", Json::array()}};
  if (micro_steps_ % reuse != 0) state["samples"] = last_batch();  // the generation is still in use
  return state;
}

void GrpoTask::restore(const Json& state) {
  micro_steps_ = state.at("micro_steps").get<std::int64_t>();
  generations_ = state.at("generations").get<std::int64_t>();
  updates_since_generation_ = state.at("updates_since_generation").get<std::int64_t>();
  tokens_seen_ = state.at("tokens_seen").get<std::int64_t>();
  samples_.clear();
  for (const Json& sample : state.at("samples")) samples_.push_back(sample_from(sample));
}

}  // namespace hone
