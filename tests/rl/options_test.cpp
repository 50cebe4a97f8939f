#include "rl/options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "support/golden.h"
#include "support/paths.h"
#include "train/foreign_keys.h"

namespace hone {
namespace {

struct Read {
  GrpoOptions options;
  OptionInput input;
};

Read read(const std::vector<std::string>& arguments) {
  Read result;
  result.input = read_options(OptionTable(result.options), arguments, training_foreign_keys());
  return result;
}

std::string error_of(const std::vector<std::string>& arguments) {
  std::vector<std::string> all{"--model_name_or_path", "m", "--dataset_name", "d", "--output_dir", "o"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  try {
    const Read result = read(all);
    check_options(result.options, result.input);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(GrpoOptions, TheRecipeIsAccepted) {
  const Read result = read({"--config", test::fixture("train/recipes/grpo.yaml").string()});
  check_options(result.options, result.input);
  const GrpoOptions& options = result.options;
  EXPECT_EQ(options.dataset_prompt_column, "problem");
  EXPECT_EQ(options.num_generations, 16);
  EXPECT_EQ(options.max_prompt_length, 1024);
  EXPECT_EQ(options.max_completion_length, 4096);
  EXPECT_EQ(options.reward_funcs, (std::vector<std::string>{"accuracy", "format", "tag_count"}));
  EXPECT_EQ(options.reward_weights, (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(options.learning_rate, 2e-5);
  EXPECT_EQ(options.gradient_checkpointing, Recomputation::kOff);
  EXPECT_EQ(notice_lines(result.input.notices),
            (std::vector<std::string>{
                "use_vllm has no effect: the key rollout says what generates, unset hone's engine in this process"}));
  EXPECT_EQ(options.vllm_server_url, std::vector<std::string>{"http://localhost:8001/v1"});
  EXPECT_EQ(options.rollout, RolloutKind::kOwn);
  const GrpoBatch batch = grpo_batch(options, 1, result.input);
  EXPECT_EQ(batch.completions, 32);
  EXPECT_EQ(batch.prompts, 2);
}

TEST(GrpoOptions, UnsetKeysTakeTheDefaultsOfTrl) {
  const GrpoOptions options;
  EXPECT_EQ(options.learning_rate, 1e-6);
  EXPECT_EQ(options.beta, 0.04);
  EXPECT_EQ(options.epsilon, 0.2);
  EXPECT_EQ(options.num_generations, 8);
  EXPECT_EQ(options.loss_type, GrpoLoss::kBnpo);
  EXPECT_EQ(options.scale_rewards, RewardScale::kGroup);
  EXPECT_EQ(options.max_prompt_length, 512);
  EXPECT_EQ(options.max_completion_length, 256);
  EXPECT_EQ(options.ref_model_mixup_alpha, 0.6);
  EXPECT_EQ(options.ref_model_sync_steps, 512);
  EXPECT_EQ(options.reward_funcs, (std::vector<std::string>{"accuracy", "format", "tag_count"}));
}

TEST(GrpoOptions, RewardScaleTakesBooleansAndNames) {
  for (const char* text : {"true", "yes", "group"}) {
    EXPECT_EQ(read({"--scale_rewards", text}).options.scale_rewards, RewardScale::kGroup) << text;
  }
  for (const char* text : {"false", "none", "no"}) {
    EXPECT_EQ(read({"--scale_rewards", text}).options.scale_rewards, RewardScale::kNone) << text;
  }
  EXPECT_EQ(read({"--scale_rewards", "batch"}).options.scale_rewards, RewardScale::kBatch);
}

TEST(GrpoOptions, BatchesAreLaidOutAsInTrl) {
  struct Case {
    std::vector<std::string> arguments;
    std::int64_t devices, steps, completions, prompts;
  };
  const std::vector<Case> cases{
      {{}, 1, 1, 8, 1},
      {{"--gradient_accumulation_steps", "4"}, 1, 4, 32, 4},
      {{"--gradient_accumulation_steps", "4", "--steps_per_generation", "8"}, 2, 8, 128, 16},
      {{"--generation_batch_size", "64"}, 2, 4, 64, 8},
      {{"--per_device_train_batch_size", "3", "--num_generations", "6", "--steps_per_generation", "2"}, 1, 2, 6, 1},
      {{"--gradient_accumulation_steps", "4", "--steps_per_generation", "2"}, 1, 2, 16, 2},
  };
  for (const Case& one : cases) {
    const Read result = read(one.arguments);
    const GrpoBatch batch = grpo_batch(result.options, one.devices, result.input);
    EXPECT_EQ(batch.steps_per_generation, one.steps);
    EXPECT_EQ(batch.completions, one.completions);
    EXPECT_EQ(batch.prompts, one.prompts);
  }
}

TEST(GrpoOptions, WhatDoesNotFitGetsOneExactLine) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> table{
      {{"--num_generations", "6"},
       "--num_generations: per_device_train_batch_size 8 x 1 device x steps_per_generation 1 = 8 completions a "
       "generation do not divide by num_generations 6 (num_generations may be 2, 4, 8)"},
      {{"--per_device_train_batch_size", "1"},
       "num_generations: per_device_train_batch_size 1 x 1 device x steps_per_generation 1 = 1 completions a "
       "generation do not divide by num_generations 8 (a larger batch is needed)"},
      {{"--num_generations", "1"}, "--num_generations: expected a whole number from 2 to 1000000, saw '1'"},
      {{"--generation_batch_size", "20"},
       "--generation_batch_size: 20 is not a multiple of per_device_train_batch_size 8 x 1 device = 8 (for example "
       "24)"},
      {{"--generation_batch_size", "16", "--steps_per_generation", "2"},
       "--generation_batch_size: both generation_batch_size 16 and steps_per_generation 2 are set (keep one of them)"},
      {{"--gradient_accumulation_steps", "4", "--steps_per_generation", "6"},
       "--steps_per_generation: neither of steps_per_generation 6 and gradient_accumulation_steps 4 is a multiple of "
       "the other (an optimizer step would straddle generations)"},
      {{"--reward_weights", "1", "2"}, "--reward_weights: 2 weights for 3 rewards: accuracy, format, tag_count"},
      {{"--reward_funcs", "[]"}, "--reward_funcs: no reward is named"},
      {{"--loss_type", "cispo"}, "--loss_type: cispo needs epsilon_high, the cap of the ratio (5.0 is usual)"},
      {{"--loss_type", "gspo"},
       "--loss_type: expected one of grpo, bnpo, dr_grpo, dapo, cispo, saw 'gspo' (did you "
       "mean grpo?)"},
      {{"--rollout", "server"}, "--rollout: is server, but none is named (vllm_server_url: http://localhost:8000)"},
      {{"--rollout", "server", "--vllm_server_url", "localhost:8000"},
       "vllm_server_url: 'localhost:8000' is not an http(s) URL (for example http://localhost:8000/v1)"},
      {{"--rollout", "server", "--vllm_server_url", "http://a:1,http://b:1,http://a:1/v1"},
       "vllm_server_url: http://a:1 is named twice (one URL for each server)"},
      {{"--rollout", "server", "--vllm_server_url", "http://a:1", "--rollout_weights", "nccl"},
       "--rollout_weights: is nccl, which is for rollout_server: hone (rollout_weights: folder)"},
      {{"--rollout", "server", "--vllm_server_host", "gpu1", "--exact_logprobs"},
       "--exact_logprobs: the probabilities of a server differ from the trainer's (remove it with rollout: server)"},
      {{"--loss_type", "cispo", "--epsilon_high", "5", "--delta", "2"},
       "--delta: cispo caps the ratio at epsilon_high alone (leave it unset)"},
      {{"--loss_type", "cispo", "--epsilon_high", "5", "--importance_sampling_level", "sequence"},
       "--importance_sampling_level: cispo weighs tokens, not sequences (another loss_type with sequence is GSPO)"},
      {{"--vllm_importance_sampling_clip_min", "4"},
       "--vllm_importance_sampling_clip_min: 4 is above vllm_importance_sampling_cap 3"},
      {{"--repetition_penalty", "0"}, "--repetition_penalty: expected a number above 0, saw '0'"},
      {{"--temperature", "0"}, "--temperature: expected a number above 0, saw '0'"},
      {{"--top_p", "1.5"}, "--top_p: expected a number above 0 and of at most 1, saw '1.5'"},
      {{"--per_device_train_batch_size", "1000000", "--gradient_accumulation_steps", "999983", "--num_generations",
        "999979"},
       "--num_generations: per_device_train_batch_size 1000000 x 1 device x steps_per_generation 999983 = 999983000000 "
       "completions a generation do not divide by num_generations 999979 (num_generations may be 2, 4, 5, 8, 10, 16, "
       "20, 25, 32, 40, 50, 64)"},
  };
  for (const auto& [arguments, line] : table) EXPECT_EQ(error_of(arguments), line);
}

TEST(GrpoOptions, ForeignKeysAreNoOptions) {
  GrpoOptions options;
  const OptionTable table(options);
  for (const ForeignKey& key : training_foreign_keys()) EXPECT_EQ(table.find(key.name), nullptr) << key.name;
}

// Model cards omit these options: they say where and how a run executes, not what it computes.
TEST(GrpoOptions, KeysOfTheRunAreMarked) {
  GrpoOptions options;
  const OptionTable table(options);
  std::vector<std::string> marked;
  for (const Option& option : table.options()) {
    if (option.run_only) marked.push_back(option.name);
  }
  EXPECT_EQ(marked, (std::vector<std::string>{"token_cache",
                                              "latent_kv_cache",
                                              "vllm_server_url",
                                              "rollout_key_variable",
                                              "rollout_weights",
                                              "rollout_weights_dir",
                                              "device",
                                              "zero_stage",
                                              "tensor_parallel_size",
                                              "sequence_parallel",
                                              "pipeline_parallel_size",
                                              "virtual_pipeline_parallel_size",
                                              "expert_parallel_size",
                                              "context_parallel_size",
                                              "ddp_timeout",
                                              "push_to_hub",
                                              "hub_model_id",
                                              "hub_strategy",
                                              "hub_always_push",
                                              "hub_private_repo",
                                              "hub_revision",
                                              "hub_token",
                                              "hub_required",
                                              "push_to_hub_revision",
                                              "hub_model_revision",
                                              "overwrite_hub_revision",
                                              "callbacks",
                                              "output_dir",
                                              "overwrite_output_dir",
                                              "resume_from_checkpoint",
                                              "benchmarks",
                                              "run_name",
                                              "metrics_block",
                                              "report_to",
                                              "logging_dir",
                                              "wandb_project",
                                              "wandb_entity",
                                              "wandb_run_group",
                                              "dry_run",
                                              "config_file",
                                              "log_completions"}));
}

TEST(GrpoOptions, HelpIsFrozen) {
  GrpoOptions options;
  test::expect_golden("rl/grpo_options.txt", option_help(OptionTable(options)));
}

TEST(GrpoOptions, LogProbabilitiesAreExactUnlessManyGpusAddThem) {
  const auto with = [](std::int64_t size, bool gpu, const std::vector<std::string>& arguments = {}) {
    Read result = read(arguments);
    result.options.num_processes = size;
    result.options.tensor_parallel_size = size;
    result.options.device = DeviceChoice::kCpu;
    if (gpu) result.options.plan.device = DeviceMemory{};
    return result;
  };
  for (const auto& [size, gpu] : {std::pair{1, true}, {2, true}, {2, false}, {4, false}}) {
    const Read exact = with(size, gpu, {"--exact_logprobs"});
    EXPECT_TRUE(exact.options.requires_exact()) << size;
    EXPECT_FALSE(exact.options.needs_trainer_logps()) << size;
    check_processes(exact.options, exact.input);
  }
  const Read several = with(4, true);
  EXPECT_FALSE(several.options.requires_exact());
  EXPECT_TRUE(several.options.needs_trainer_logps());
  EXPECT_TRUE(several.options.corrects_importance());
  check_processes(several.options, several.input);
  const Read asked = with(4, true, {"--exact_logprobs"});
  try {
    check_processes(asked.options, asked.input);
    ADD_FAILURE() << "nothing is refused";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "--exact_logprobs: a tensor group of 4 GPUs adds in an order that depends on the batch "
              "(--tensor_parallel_size 2, or remove exact_logprobs)");
  }
}

}  // namespace
}  // namespace hone
