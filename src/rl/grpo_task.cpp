#include "rl/grpo_task.h"

#include <limits>
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

Json to_json(std::span<const PolicySample> samples) {
  Json json = Json::array();
  for (const PolicySample& sample : samples) json.push_back(to_json(sample));
  return json;
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

// ref = alpha policy + (1 - alpha) ref, element by element, on the host.
void mix_into(const TensorStore& policy, TensorStore& reference, double alpha) {
  const auto a = static_cast<float>(alpha);
  for (const NamedType& tensor : reference.tensors()) {
    const std::int64_t count = tensor.type.elements();
    const std::vector<std::byte> ours = policy.download(tensor.name);
    std::vector<std::byte> theirs = reference.download(tensor.name);
    const auto mix = [&]<class T>() {
      const T* from = reinterpret_cast<const T*>(ours.data());
      T* to = reinterpret_cast<T*>(theirs.data());
      parallel_for(count, 16384, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          to[i] = static_cast<T>(a * static_cast<float>(from[i]) + (1.0f - a) * static_cast<float>(to[i]));
        }
      });
    };
    for_floating(tensor.type.dtype, mix);
    reference.upload(tensor.name, theirs);
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

Rollout GrpoTask::generate() {
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
  const RandomStream seeds(static_cast<std::uint64_t>(options.seed), "rollout",
                           static_cast<std::uint64_t>(generations_));
  const auto seed_of = [&](std::size_t sample) {
    return (std::uint64_t{seeds.bits(2 * sample)} << 32) | seeds.bits(2 * sample + 1);
  };
  Rollout rollout =
      roll_out(setup_.engine, setup_.tokenizer, setup_.prompts, chosen, setup_.rewards, rollout_options, seed_of);
  ++generations_;
  updates_since_generation_ = 0;
  for (const PolicySample& sample : rollout.samples) {
    tokens_seen_ += static_cast<std::int64_t>(sample.prompt.size() + sample.completion.size());
  }
  samples_ = rollout.samples;
  if (setup_.reference != nullptr) add_reference_logps();
  return rollout;
}

void GrpoTask::report(std::span<const Rollout> rollouts, std::int64_t step) const {
  if (rollouts.empty()) return;
  write_completions(setup_.completions_dir / text_of("step-", step + 1, ".jsonl"), rollouts, setup_.rewards, step + 1);
  if (!setup_.options.log_completions) return;
  std::int64_t left = setup_.options.num_completions_to_print.value_or(std::numeric_limits<std::int64_t>::max());
  for (const Rollout& rollout : rollouts) {
    for (const JudgedCompletion& judged : rollout.judged) {
      if (left-- > 0) log_info(text_of("step ", step + 1, ", ", to_text(judged, setup_.rewards)));
    }
  }
}

void GrpoTask::add_reference_logps() {
  for (std::int64_t index = 0; index < setup_.batch.steps_per_generation; ++index) {
    const auto first = static_cast<std::size_t>(index * setup_.batch.micro_batch);
    const std::span<const PolicySample> samples = micro_batch(samples_, index);
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

std::span<const PolicySample> GrpoTask::micro_batch(std::span<const PolicySample> samples, std::int64_t index) const {
  const auto size = static_cast<std::size_t>(setup_.batch.micro_batch);
  return samples.subspan(static_cast<std::size_t>(index) * size, size);
}

double GrpoTask::run(std::span<const PolicySample> samples, const LossNormaliser& normaliser, bool compare,
                     PolicyMetrics& metrics) {
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
  metrics.add(batch, logps, entropies, kls, compare);
  return loss;
}

MetricValues GrpoTask::accumulate(std::int64_t step) {
  const GrpoOptions& options = setup_.options;
  const std::int64_t reuse = setup_.batch.steps_per_generation * options.num_iterations;
  const std::int64_t accumulation = options.gradient_accumulation_steps;
  // A step may read several generations, the end of one and the start of the next, and its normaliser is taken over all
  // that it reads.
  std::vector<Rollout> rollouts;
  std::vector<bool> fresh;  // by micro-batch: sampled by the policy as it is
  read_.clear();
  for (std::int64_t i = 0; i < accumulation; ++i) {
    const std::int64_t at = micro_steps_ + i;
    if (at % reuse == 0) rollouts.push_back(generate());
    fresh.push_back(updates_since_generation_ == 0);
    const auto samples = micro_batch(samples_, at % setup_.batch.steps_per_generation);
    read_.insert(read_.end(), samples.begin(), samples.end());
  }
  report(rollouts, step);
  LossNormaliser normaliser{.loss = options.loss_type,
                            .max_completion_length = options.max_completion_length,
                            .mask_truncated = options.mask_truncated_completions};
  normaliser.count(read_);
  PolicyMetrics policy_metrics(loss_);
  double loss = 0;
  for (std::int64_t i = 0; i < accumulation; ++i) {
    loss += run(micro_batch(read_, i), normaliser, fresh[static_cast<std::size_t>(i)], policy_metrics);
  }
  micro_steps_ += accumulation;
  MetricValues values{{"loss", loss}};
  const NamedValues generation_values = rollout_metrics(rollouts, setup_.rewards);
  values.insert(values.end(), generation_values.begin(), generation_values.end());
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

Json GrpoTask::last_batch() const { return to_json(read_); }

Json GrpoTask::state() const {
  const std::int64_t reuse = setup_.batch.steps_per_generation * setup_.options.num_iterations;
  const bool in_use = micro_steps_ % reuse != 0;  // the generation
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
  samples_.clear();
  for (const Json& sample : state.at("samples")) samples_.push_back(sample_from(sample));
}

}  // namespace hone
