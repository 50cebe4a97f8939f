#include "rl/options.h"

#include <algorithm>

#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "rl/server_weights.h"
#include "system/job_place.h"
#include "train/launch.h"
#include "train/setup.h"

namespace hone {
namespace {

// Lists the first divisors of a number above 1, for suggestions of num_generations.
std::string divisors_text(std::int64_t number) {
  constexpr std::size_t kMost = 12;
  constexpr std::int64_t kLargest = 4096;
  std::vector<std::string> divisors;
  for (std::int64_t divisor = 2; divisor <= std::min(number, kLargest) && divisors.size() < kMost; ++divisor) {
    if (number % divisor == 0) divisors.push_back(std::to_string(divisor));
  }
  return join(divisors, ", ");
}

std::string devices_text(std::int64_t devices) { return text_of(devices, devices == 1 ? " device" : " devices"); }

// Returns the batches per generation, from the one of the two keys that is set.
std::int64_t steps_of(const GrpoOptions& options, std::int64_t devices, const OptionInput& input) {
  if (!options.generation_batch_size) {
    return options.steps_per_generation.value_or(options.gradient_accumulation_steps);
  }
  if (options.steps_per_generation) {
    throw Error(input.place_of("generation_batch_size"),
                text_of("both generation_batch_size ", *options.generation_batch_size, " and steps_per_generation ",
                        *options.steps_per_generation, " are set"),
                "keep one of them");
  }
  const std::int64_t micro = options.per_device_train_batch_size * devices;
  if (*options.generation_batch_size % micro != 0) {
    throw Error(input.place_of("generation_batch_size"),
                text_of(*options.generation_batch_size, " is not a multiple of per_device_train_batch_size ",
                        options.per_device_train_batch_size, " x ", devices_text(devices), " = ", micro),
                text_of("for example ", (*options.generation_batch_size / micro + 1) * micro));
  }
  return *options.generation_batch_size / micro;
}

// Logs that the keys among `keys` that were set have no effect, and why.
void say_without_effect(std::initializer_list<const char*> keys, const std::string& why, const OptionInput& input) {
  std::vector<OptionNotice> notices;
  for (const char* key : keys) {
    if (input.was_set(key)) notices.push_back({key, why});
  }
  for (const std::string& line : notice_lines(notices)) log_once(line);
}

void check_importance(const GrpoOptions& options, const OptionInput& input) {
  const double least = options.vllm_importance_sampling_clip_min.value_or(0);
  if (least > options.vllm_importance_sampling_cap) {
    throw Error(input.place_of("vllm_importance_sampling_clip_min"),
                text_of(least, " is above vllm_importance_sampling_cap ", options.vllm_importance_sampling_cap));
  }
  if (options.corrects_importance()) return;
  say_without_effect(
      {"vllm_importance_sampling_mode", "vllm_importance_sampling_cap", "vllm_importance_sampling_clip_min"},
      "without a server and max_staleness, rollout and trainer have the same probabilities "
      "(vllm_importance_sampling_correction: true applies the correction anyway)",
      input);
}

void check_server(const GrpoOptions& options, const OptionInput& input) {
  if (options.rollout == RolloutKind::kOwn) {
    say_without_effect({"rollout_server", "vllm_server_url", "vllm_server_host", "vllm_server_port",
                        "vllm_server_timeout", "rollout_key_variable", "rollout_weights", "rollout_weights_dir"},
                       "completions come from hone's engine in this process (rollout: server uses a server)", input);
    return;
  }
  if (options.vllm_server_url.empty() && options.vllm_server_host.empty()) {
    throw Error(input.place_of("rollout"), "is server, but none is named", "vllm_server_url: http://localhost:8000");
  }
  (void)rollout_server_urls(options);
  if (options.rollout_weights == RolloutWeights::kNccl && options.rollout_server != RolloutServer::kHone) {
    throw Error(input.place_of("rollout_weights"), "is nccl, which is for rollout_server: hone",
                "rollout_weights: folder");
  }
  if (options.exact_logprobs && input.was_set("exact_logprobs")) {
    throw Error(input.place_of("exact_logprobs"), "the probabilities of a server differ from the trainer's",
                "remove it with rollout: server");
  }
}

// Throws Error if a model or a batch would be divided in a way that is for other commands.
void check_divisions(const GrpoOptions& options, const OptionInput& input) {
  if (options.sequence_parallel) {
    throw Error(input.place_of("sequence_parallel"),
                "is for pretrain and sft; hone grpo computes all tokens on each rank", "--sequence_parallel false");
  }
  if (options.virtual_pipeline_parallel_size > 1) {
    throw Error(input.place_of("virtual_pipeline_parallel_size"),
                "divides the stages of a pipeline; hone grpo has none", "--virtual_pipeline_parallel_size 1");
  }
  for (const auto& [key, size, of_weights, of_tokens] : options.group_sizes()) {
    if (size == 1 || std::string_view(key) == "tensor_parallel_size") continue;
    const char* const needs = of_weights ? "divides weights by tensor_parallel_size only" : "computes whole sequences";
    throw Error(key, text_of("is ", size, "; hone grpo ", needs), text_of("--", key, " 1"));
  }
}

}  // namespace

GrpoBatch grpo_batch(const GrpoOptions& options, std::int64_t devices, const OptionInput& input) {
  GrpoBatch batch;
  batch.size = options.per_device_train_batch_size;
  batch.steps_per_generation = steps_of(options, devices, input);
  batch.completions = batch.size * devices * batch.steps_per_generation;
  const std::int64_t accumulation = options.gradient_accumulation_steps;
  if (batch.steps_per_generation % accumulation != 0 && accumulation % batch.steps_per_generation != 0) {
    throw Error(input.place_of("steps_per_generation"),
                text_of("neither of steps_per_generation ", batch.steps_per_generation,
                        " and gradient_accumulation_steps ", accumulation, " is a multiple of the other"),
                "an optimizer step would straddle generations");
  }
  if (batch.completions % options.num_generations != 0) {
    throw Error(input.place_of("num_generations"),
                text_of("per_device_train_batch_size ", batch.size, " x ", devices_text(devices),
                        " x steps_per_generation ", batch.steps_per_generation, " = ", batch.completions,
                        " completions a generation do not divide by num_generations ", options.num_generations),
                batch.completions < 2 ? "a larger batch is needed"
                                      : text_of("num_generations may be ", divisors_text(batch.completions)));
  }
  batch.prompts = batch.completions / options.num_generations;
  return batch;
}

void check_options(const GrpoOptions& options, const OptionInput& input) {
  check_training(options, options, options, true, input);
  check_divisions(options, input);
  if (options.fp8.fp8) {
    throw Error(input.place_of("fp8"), "is for pretrain and sft: the policy that samples is not in FP8", "remove fp8");
  }
  check_lora(options, input);
  if (options.use_peft && options.lora_dropout > 0 && input.was_set("lora_dropout")) {
    log_once(text_of(input.place_of("lora_dropout"), " has no effect: grpo trains the policy as it samples"));
  }
  if (options.use_peft && options.sync_ref_model) {
    throw Error(input.place_of("sync_ref_model"), "the reference of an adapter is the base model, which does not move",
                "remove sync_ref_model or use_peft");
  }
  if (options.reward_funcs.empty()) throw Error(input.place_of("reward_funcs"), "no reward is named");
  if (!options.reward_weights.empty() && options.reward_weights.size() != options.reward_funcs.size()) {
    throw Error(input.place_of("reward_weights"),
                text_of(options.reward_weights.size(), " weights for ", options.reward_funcs.size(),
                        " rewards: ", join(options.reward_funcs, ", ")));
  }
  if (options.loss_type == GrpoLoss::kCispo && !options.epsilon_high) {
    throw Error(input.place_of("loss_type"), "cispo needs epsilon_high, the cap of the ratio", "5.0 is usual");
  }
  if (options.loss_type == GrpoLoss::kCispo && options.delta) {
    throw Error(input.place_of("delta"), "cispo caps the ratio at epsilon_high alone", "leave it unset");
  }
  if (options.loss_type == GrpoLoss::kCispo && options.importance_sampling_level == ImportanceLevel::kSequence) {
    throw Error(input.place_of("importance_sampling_level"), "cispo weighs tokens, not sequences",
                "another loss_type with sequence is GSPO");
  }
  check_importance(options, input);
  check_server(options, input);
  const std::int64_t groups = processes_of(options, job_place()) / options.tensor_parallel_size;
  (void)grpo_batch(options, std::max<std::int64_t>(groups, 1), input);
}

bool GrpoOptions::sums_depend_on_rows() const {
  constexpr std::int64_t kOneSum = 2;
  return tensor_parallel_size > kOneSum && device_kind(*this) != DeviceKind::kCpu;
}

void check_processes(const GrpoOptions& options, const OptionInput& input) {
  if (options.exact_logprobs && options.rollout == RolloutKind::kOwn && !options.samples_as_trained()) {
    const std::string reason =
        text_of("a tensor group of ", options.tensor_parallel_size, " GPUs adds in an order that depends on the batch");
    if (input.was_set("exact_logprobs"))
      throw Error(input.place_of("exact_logprobs"), reason, "--tensor_parallel_size 2, or remove exact_logprobs");
    log_once(text_of("exact_logprobs has no effect: ", reason,
                     "; the trainer computes the log-probabilities again, and the policy term is corrected "
                     "(sampling/sampling_logp_difference)"));
  }
  if (options.mesh().data_size() == 1) return;
  if (options.max_staleness > 0 && options.rollout == RolloutKind::kOwn) {
    throw Error("max_staleness",
                text_of("is ", options.max_staleness,
                        "; an engine begins generations ahead in one process or tensor group only"),
                "--num_processes 1, rollout: server, or max_staleness: 0");
  }
  if (const auto stage = options.zero_stage.value_or(0); stage > 1) {
    throw Error("zero_stage", text_of("is ", stage, "; hone grpo divides the optimizer states only"), "--zero_stage 1");
  }
}

}  // namespace hone
