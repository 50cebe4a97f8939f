// Options of `hone grpo`. Names and defaults are those of TRL 0.18 unless the help says otherwise. grpo_task.h gives
// the formulas in which they appear.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/option_set.h"
#include "core/options.h"
#include "engine/engine_options.h"
#include "engine/sampling_keys.h"
#include "reward/reward.h"
#include "train/options.h"

namespace hone {

enum class GrpoLoss : std::uint8_t { kGrpo, kBnpo, kDrGrpo, kDapo, kCispo };
template <>
inline constexpr EnumTable kEnumTable<GrpoLoss>{.names = "grpo|bnpo|dr_grpo|dapo|cispo"};

enum class ImportanceLevel : std::uint8_t { kToken, kSequence };
template <>
inline constexpr EnumTable kEnumTable<ImportanceLevel>{.names = "token|sequence"};

// Treatment of the ratio of the trainer's to the sampler's probabilities: per token or per completion, clamped to its
// bounds or set to 0 outside of them (importance.h).
enum class ImportanceMode : std::uint8_t { kTokenTruncate, kTokenMask, kSequenceTruncate, kSequenceMask };
template <>
inline constexpr EnumTable kEnumTable<ImportanceMode>{.names =
                                                          "token_truncate|token_mask|sequence_truncate|sequence_mask"};

enum class RewardScale : std::uint8_t { kGroup, kBatch, kNone };
template <>
inline constexpr EnumTable kEnumTable<RewardScale>{.names = "group|batch|none", .aliases = "true=group"};

enum class RolloutKind : std::uint8_t { kOwn, kServer };
template <>
inline constexpr EnumTable kEnumTable<RolloutKind>{.names = "own|server"};

enum class RolloutServer : std::uint8_t { kVllm, kSglang, kHone };
template <>
inline constexpr EnumTable kEnumTable<RolloutServer>{.names = "vllm|sglang|hone"};

// Way of the weights to servers; kAuto: over NCCL if trainer and servers can, otherwise through a folder.
enum class RolloutWeights : std::uint8_t { kAuto, kFolder, kNccl };
template <>
inline constexpr EnumTable kEnumTable<RolloutWeights>{.names = "auto|folder|nccl"};

template <>
inline constexpr EnumTable kEnumTable<SandboxMode>{.names = "namespaces|bubblewrap|none"};

struct RewardKeys {
  std::vector<std::string> reward_funcs{"accuracy", "format", "tag_count"};
  std::vector<double> reward_weights;
  OptionSet keys_of_rewards = reward_keys();  // options that the rewards declare in their folders
  double reward_timeout = 60;
  SandboxMode sandbox = SandboxMode::kNamespaces;

  template <class Visitor>
  void fields(Visitor& v) {
    v.group("Rewards");
    v("reward_funcs", reward_funcs,
      "Rewards by name; your own: FILE.py:FUNCTION as for TRL, or the path (with a slash) of an executable or a .so");
    v("reward_weights", reward_weights, "One weight per reward; unset: 1 each");
    keys_of_rewards.fields(v);
    v("reward_timeout", reward_timeout, "User rewards: seconds per batch of completions", above(0));
    v("sandbox", sandbox,
      "Isolation of the programs that rewards run; with none they can reach everything on this machine");
  }
};

struct GrpoOptions : ModelOptions, DatasetOptions, TrainingOptions, RewardKeys, LoraOptions {
  std::string chat_template;
  std::string system_prompt;
  std::string dataset_prompt_column;
  bool shuffle_dataset = true;

  std::int64_t num_generations = 8;
  std::optional<std::int64_t> steps_per_generation;
  std::optional<std::int64_t> generation_batch_size;
  std::optional<std::int64_t> max_prompt_length = 512;
  std::int64_t max_completion_length = 256;
  double temperature = 1.0;
  double top_p = 1.0;
  std::optional<std::int64_t> top_k;
  std::optional<double> min_p;
  double repetition_penalty = 1.0;
  bool latent_kv_cache = false;
  RolloutKind rollout = RolloutKind::kOwn;
  RolloutServer rollout_server = RolloutServer::kVllm;
  std::vector<std::string> vllm_server_url;
  std::string vllm_server_host;
  std::int64_t vllm_server_port = 8000;
  double vllm_server_timeout = 240;
  std::string rollout_key_variable = "VLLM_API_KEY";
  RolloutWeights rollout_weights = RolloutWeights::kAuto;
  std::string rollout_weights_dir;
  bool exact_logprobs = true;
  std::int64_t max_staleness = 0;

  double beta = 0.04;
  std::int64_t num_iterations = 1;
  double epsilon = 0.2;
  std::optional<double> epsilon_high;
  std::optional<double> delta;
  GrpoLoss loss_type = GrpoLoss::kBnpo;
  ImportanceLevel importance_sampling_level = ImportanceLevel::kToken;
  std::optional<bool> vllm_importance_sampling_correction;
  ImportanceMode vllm_importance_sampling_mode = ImportanceMode::kSequenceMask;
  double vllm_importance_sampling_cap = 3.0;
  std::optional<double> vllm_importance_sampling_clip_min;
  RewardScale scale_rewards = RewardScale::kGroup;
  bool mask_truncated_completions = false;
  double top_entropy_quantile = 1.0;
  bool sync_ref_model = false;
  double ref_model_mixup_alpha = 0.6;
  std::int64_t ref_model_sync_steps = 512;

  bool log_completions = false;
  std::optional<std::int64_t> num_completions_to_print;

  GrpoOptions() { learning_rate = 1e-6; }

  // Returns true if the policy term is multiplied by the ratio of the trainer's to the sampler's probabilities.
  [[nodiscard]] bool corrects_importance() const {
    return vllm_importance_sampling_correction.value_or(sampler_may_differ());
  }
  // Returns true if a forward pass computes the trainer's log-probabilities of each generation before its first update;
  // with max_staleness, of completions that older weights have begun.
  [[nodiscard]] bool needs_trainer_logps() const { return corrects_importance() || sampler_may_differ(); }
  // Returns true if hone's engine draws with the trainer's probabilities for the same weights, bit for bit.
  [[nodiscard]] bool samples_as_trained() const { return rollout == RolloutKind::kOwn && !sums_depend_on_rows(); }
  // Returns true if a log-probability of sampler and trainer for the same weights that differs ends the run.
  [[nodiscard]] bool requires_exact() const { return exact_logprobs && samples_as_trained(); }

  template <class Visitor>
  void fields(Visitor& v) {
    ModelOptions::fields(v);
    v("chat_template", chat_template, "Jinja template, as text or a file, instead of the model's");
    DatasetOptions::fields(v);
    v("dataset_prompt_column", dataset_prompt_column, "Column of prompts; unset: prompt, problem or question");
    v("system_prompt", system_prompt, "System message of conversations that have none");
    v("shuffle_dataset", shuffle_dataset, "Shuffle the prompts");
    RewardKeys::fields(v);
    generation_fields(v);
    loss_fields(v);
    LoraOptions::fields(v);
    TrainingOptions::fields(v);
    v.run_only(
        [&] { v("log_completions", log_completions, "Print completions with their rewards at each logged step"); });
    v("num_completions_to_print", num_completions_to_print, "Completions to print; unset: all", at_least(1));
  }

 private:
  // Returns true if the probabilities that drew a token may be others than the trainer's.
  [[nodiscard]] bool sampler_may_differ() const { return !samples_as_trained() || max_staleness > 0; }
  // Returns true if a tensor group adds the numbers of more than two GPUs, in an order of NCCL that depends on how many
  // rows a program has. Two numbers have one sum.
  [[nodiscard]] bool sums_depend_on_rows() const;

  template <class Visitor>
  void generation_fields(Visitor& v) {
    v.group("Generation");
    v("num_generations", num_generations, "Completions per prompt", within(2, 1'000'000));
    v("steps_per_generation", steps_per_generation, "Batches per generation; unset: gradient_accumulation_steps",
      kCount);
    v("generation_batch_size", generation_batch_size, "Completions per generation, instead of steps_per_generation",
      at_least(1));
    v("max_prompt_length", max_prompt_length,
      "Tokens per prompt; longer prompts keep their last tokens; null: no limit", at_least(1));
    v("max_completion_length", max_completion_length, "Tokens per completion", at_least(1));
    v("temperature", temperature, "Divides the logits", above(0));
    v("top_p", top_p, "Sample from the most likely tokens that reach this total probability",
      {.least = 0, .most = 1, .least_excluded = true});
    v("top_k", top_k, "Sample from this many of the most likely tokens; unset or 0: all", at_least(0));
    v("min_p", min_p, "Sample from tokens of at least this share of the largest probability", within(0, 1));
    v("repetition_penalty", repetition_penalty, kRepetitionPenaltyHelp, above(0));
    v.run_only([&] { v("latent_kv_cache", latent_kv_cache, kLatentKvCacheHelp); });
    v("rollout", rollout, "What generates: hone's engine in this process, or a server that receives the weights");
    v("rollout_server", rollout_server,
      "rollout: server: kind of the server, which decides how new weights are announced");
    v.run_only([&] {
      v("vllm_server_url", vllm_server_url,
        "rollout: server: its URL, with or without /v1; several: the prompts are divided over them");
    });
    v.alias("vllm_server_base_url", "vllm_server_url");
    v("vllm_server_host", vllm_server_host, "rollout: server: its host, if no URL is set");
    v("vllm_server_port", vllm_server_port, "rollout: server: its port, used with vllm_server_host", within(1, 65535));
    v("vllm_server_timeout", vllm_server_timeout,
      "rollout: server: seconds that an answer may take, and for which requests without an answer are repeated",
      within(0.001, 1e6));
    v.run_only([&] {
      v("rollout_key_variable", rollout_key_variable, "rollout: server: environment variable that holds its API key");
      v("rollout_weights", rollout_weights,
        "rollout: server: how the weights reach the server: through a folder, or over NCCL from GPU to GPU, which "
        "hone serve takes; auto: over NCCL where both can");
      v("rollout_weights_dir", rollout_weights_dir,
        "rollout: server: folder of the weights, which the server must see under this path; unset: rollout_weights in "
        "output_dir");
    });
    v("exact_logprobs", exact_logprobs,
      "Stop unless rollout and trainer compute bitwise the same probabilities; a tensor group of more than two GPUs "
      "compares them and corrects the difference");
    v("max_staleness", max_staleness,
      "Generations by which the weights that draw a token may be older than those that learn from it first; 1: the "
      "next generation is begun where the last completions of one leave room; servers draw it while a step trains",
      within(0, 1));
  }

  template <class Visitor>
  void loss_fields(Visitor& v) {
    v.group("Loss");
    v("loss_type", loss_type, "Loss and its normaliser");
    v("beta", beta, "Weight of the KL divergence from the reference model; 0: no reference model", at_least(0));
    v("num_iterations", num_iterations, "Passes over each generation", at_least(1));
    v("epsilon", epsilon, "The importance ratio is clipped below 1 - epsilon", at_least(0));
    v("epsilon_high", epsilon_high,
      "The importance ratio is clipped above 1 + epsilon_high; unset: epsilon; cispo: the bound itself", at_least(0));
    v("delta", delta, "Upper bound of the importance ratio before it is clipped", above(0));
    v("importance_sampling_level", importance_sampling_level,
      "Importance ratios of tokens, or of whole completions (GSPO)");
    v("vllm_importance_sampling_correction", vllm_importance_sampling_correction,
      "Multiply the policy term by the ratio of the trainer's to the sampler's probability; unset: for rollout: "
      "server");
    v("vllm_importance_sampling_mode", vllm_importance_sampling_mode,
      "These ratios of tokens or of whole completions; truncate clamps them to the bounds, mask sets those outside to "
      "0");
    v("vllm_importance_sampling_cap", vllm_importance_sampling_cap, "Upper bound of these ratios", above(0));
    v.alias("vllm_importance_sampling_clip_max", "vllm_importance_sampling_cap");
    v("vllm_importance_sampling_clip_min", vllm_importance_sampling_clip_min, "Lower bound of these ratios",
      at_least(0));
    v("scale_rewards", scale_rewards,
      "Completions whose standard deviation divides the advantages; with none, nothing is divided");
    v("mask_truncated_completions", mask_truncated_completions, "No loss on completions without an end token");
    v("top_entropy_quantile", top_entropy_quantile,
      "Share of the tokens, those of the highest entropy, that keep the policy term", within(0, 1));
    v("sync_ref_model", sync_ref_model, "Move the reference model towards the policy");
    v("ref_model_mixup_alpha", ref_model_mixup_alpha, "Share of the policy in such a move", within(0, 1));
    v("ref_model_sync_steps", ref_model_sync_steps, "Steps between such moves", at_least(1));
  }
};

// Division of a generation into batches, as in TRL 0.18.
struct GrpoBatch {
  std::int64_t size = 0;                  // completions per batch on one device
  std::int64_t steps_per_generation = 0;  // batches per generation
  std::int64_t completions = 0;           // completions per generation, on all devices
  std::int64_t prompts = 0;               // prompts per generation
};
// Computes the division. Throws Error that shows the arithmetic if the batch sizes do not divide each other.
[[nodiscard]] GrpoBatch grpo_batch(const GrpoOptions& options, std::int64_t devices, const OptionInput& input);

// Checks the options. Throws Error if values contradict each other or a required option is not set.
void check_options(const GrpoOptions& options, const OptionInput& input);
// Throws Error if the options do not allow several processes, of which there are. To be called once this process has
// its device.
void check_processes(const GrpoOptions& options, const OptionInput& input);

}  // namespace hone
