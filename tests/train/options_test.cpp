#include "train/options.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/error.h"
#include "core/files.h"
#include "support/golden.h"
#include "support/paths.h"
#include "train/accelerate.h"
#include "train/foreign_keys.h"
#include "train/launch.h"

namespace hone {
namespace {

template <class Options>
struct Read {
  Options options;
  OptionInput input;
};

template <class Options>
Read<Options> read(const std::vector<std::string>& arguments) {
  Read<Options> result;
  result.input = read_options(OptionTable(result.options), arguments, training_foreign_keys());
  return result;
}

template <class Options>
std::string error_of(const std::vector<std::string>& arguments) {
  try {
    const Read<Options> result = read<Options>(arguments);
    check_options(result.options, result.input);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string recipe(std::string_view name) { return test::fixture("train/recipes/" + std::string(name)).string(); }

TEST(TrainingOptions, TheSftRecipeIsAccepted) {
  const auto result = read<SftOptions>({"--config", recipe("sft.yaml")});
  check_options(result.options, result.input);
  const SftOptions& options = result.options;
  EXPECT_EQ(options.model_name_or_path, "Qwen/Qwen2.5-Math-7B");
  EXPECT_EQ(options.dataset_config, "all");
  EXPECT_TRUE(options.packing);
  EXPECT_EQ(options.max_length, 4096);
  EXPECT_EQ(options.per_device_train_batch_size, 4);
  EXPECT_EQ(options.gradient_accumulation_steps, 4);
  EXPECT_EQ(options.learning_rate, 4e-5);
  EXPECT_EQ(options.lr_scheduler_type, SchedulerType::kCosineWithMinLr);
  EXPECT_EQ(options.lr_scheduler_kwargs.min_lr_rate, 0.1);
  EXPECT_EQ(options.warmup_ratio, 0.03);
  EXPECT_EQ(options.num_train_epochs, 1);
  EXPECT_EQ(options.max_grad_norm, 0.2);
  EXPECT_EQ(options.gradient_checkpointing, Recomputation::kOn);
  EXPECT_EQ(options.save_strategy, SaveStrategy::kEpoch);
  EXPECT_EQ(options.save_total_limit, 2);
  EXPECT_EQ(weight_dtype(options), DType::kBf16);
  EXPECT_EQ(notice_lines(result.input.notices),
            (std::vector<std::string>{"dataset_num_proc has no effect: hone reads and tokenises data in its own way",
                                      "use_liger_kernel has no effect: hone has one implementation of it"}));
}

TEST(TrainingOptions, EveryKeyOfOpenR1IsAccepted) {
  const auto result = read<SftOptions>({"--config", recipe("open_r1_sft.yaml")});
  check_options(result.options, result.input);
  EXPECT_EQ(result.options.eos_token, "<|im_end|>");
  EXPECT_EQ(result.options.eval_strategy, Interval::kNo);
  EXPECT_EQ(result.options.completion_only_loss, std::nullopt);
}

TEST(TrainingOptions, TheAccelerateFileIsRead) {
  OptionInput input;
  const AccelerateOptions options = read_accelerate(recipe("accelerate.yaml"), input);
  EXPECT_EQ(options.distributed_type, "DEEPSPEED");
  EXPECT_EQ(options.num_processes, 8);
  EXPECT_EQ(options.mixed_precision, "bf16");
  EXPECT_EQ(options.zero_stage, "2");
  EXPECT_TRUE(input.notices.empty());
  const auto sft = read<SftOptions>({"--config", recipe("sft.yaml"), "--config_file", recipe("accelerate.yaml")});
  EXPECT_NO_THROW(check_options(sft.options, sft.input));
  EXPECT_TRUE(accelerate_notices(options, "a.yaml", sft.options, sft.options).empty());
}

TEST(TrainingOptions, ProcessesComeFromTheLauncherTheKeyOrTheFile) {
  SftOptions sft;
  EXPECT_EQ(processes_of(sft, {}), 1);
  EXPECT_EQ(ranks_to_start(sft, {}).count, 0);
  sft.config_file = recipe("accelerate.yaml");
  EXPECT_EQ(processes_of(sft, {}), 8);
  EXPECT_EQ(ranks_to_start(sft, {}).count, 8);
  const JobPlace started{.rank = 1, .size = 4};
  EXPECT_EQ(processes_of(sft, started), 4);
  EXPECT_EQ(ranks_to_start(sft, started).count, 0);
  sft.num_processes = 2;
  EXPECT_EQ(processes_of(sft, {}), 2);
  EXPECT_THROW((void)processes_of(sft, started), Error);
}

TEST(TrainingOptions, TheFileDividesWhereNoKeyDoes) {
  SftOptions sft;
  sft.config_file = recipe("accelerate.yaml");
  sft.num_processes = 2;
  apply_launch_file(sft, {});
  EXPECT_EQ(sft.zero_stage, 2);
  EXPECT_TRUE(sft.divides_gradients() && !sft.divides_weights());
  const auto keys =
      read<SftOptions>({"--zero_stage", "3", "--num_processes", "1", "--config_file", recipe("accelerate.yaml")});
  sft = keys.options;
  apply_launch_file(sft, keys.input);
  EXPECT_EQ(sft.zero_stage, 3);
  EXPECT_FALSE(sft.divides_gradients() || sft.divides_weights()) << "one process has nothing to divide";
}

// The files of accelerate's documentation for FSDP, Megatron-LM and native parallelism.
TEST(TrainingOptions, TheFileDividesAsAccelerateWould) {
  const test::TemporaryDirectory folder;
  const auto file = folder.path() / "launch.yaml";
  const auto division = [&](const std::string& text) {
    write_file(file, text);
    OptionInput input;
    return division_of(read_accelerate(file, input), "launch.yaml");
  };
  const auto stage = [&](const std::string& keys) {
    return division("distributed_type: FSDP\nnum_processes: 4\nfsdp_config: {" + keys + "}\n").zero_stage;
  };
  EXPECT_EQ(stage(""), 3);
  EXPECT_EQ(stage("fsdp_sharding_strategy: FULL_SHARD, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP"), 3);
  EXPECT_EQ(stage("fsdp_sharding_strategy: SHARD_GRAD_OP"), 2);
  EXPECT_EQ(stage("fsdp_sharding_strategy: 1"), 3);
  EXPECT_EQ(stage("fsdp_sharding_strategy: NO_SHARD"), 0);
  EXPECT_EQ(stage("fsdp_reshard_after_forward: SHARD_GRAD_OP"), 2);
  EXPECT_EQ(stage("fsdp_sharding_strategy: HYBRID_SHARD_ZERO2"), 2);
  EXPECT_EQ(stage("fsdp_version: 2, fsdp_reshard_after_forward: true"), 3);
  EXPECT_EQ(stage("fsdp_version: 2, fsdp_reshard_after_forward: false, fsdp_state_dict_type: SHARDED_STATE_DICT"), 2);
  EXPECT_THROW((void)stage("fsdp_sharding_strategy: FULL"), Error);
  EXPECT_THROW((void)stage("fsdp_version: 2, fsdp_reshard_after_forward: FULL_SHARD"), Error);
  EXPECT_THROW((void)division("distributed_type: FSDP\nnum_machines: 2\n"
                              "fsdp_config: {fsdp_sharding_strategy: HYBRID_SHARD}\n"),
               Error);
  const auto deepspeed = [&](const std::string& value) {
    return division("distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: " + value + "}\n").zero_stage;
  };
  EXPECT_EQ(deepspeed("1"), 1);
  EXPECT_EQ(deepspeed("auto"), std::nullopt);
  EXPECT_THROW((void)deepspeed("4"), Error);
  EXPECT_THROW((void)deepspeed("two"), Error);
  const AccelerateDivision megatron = division(R"(distributed_type: MEGATRON_LM
num_processes: 4
megatron_lm_config:
  megatron_lm_gradient_clipping: 1.0
  megatron_lm_num_micro_batches: 2
  megatron_lm_pp_degree: 2
  megatron_lm_recompute_activations: true
  megatron_lm_sequence_parallelism: true
  megatron_lm_tp_degree: 2
  megatron_lm_use_distributed_optimizer: true
)");
  EXPECT_EQ(megatron.tensor_parallel_size, 2);
  EXPECT_EQ(megatron.pipeline_parallel_size, 2);
  EXPECT_TRUE(megatron.sequence_parallel);
  EXPECT_EQ(megatron.zero_stage, 1);
  const std::string native = R"(distributed_type: FSDP
num_processes: 8
fsdp_config: {fsdp_version: 2}
parallelism_config:
  parallelism_config_cp_size: 2
  parallelism_config_dp_replicate_size: 1
  parallelism_config_dp_shard_size: 2
  parallelism_config_tp_size: 2
)";
  const AccelerateDivision mesh = division(native);
  EXPECT_EQ(mesh.tensor_parallel_size, 2);
  EXPECT_EQ(mesh.context_parallel_size, 2);
  EXPECT_EQ(mesh.zero_stage, 3);
  EXPECT_THROW((void)division(native + "  parallelism_config_cp_comm_strategy: allgather\nnum_machines: 1\n"
                                       "machine_rank: 0\nparallelism_config_unknown: 2\n"),
               Error);
  EXPECT_THROW((void)division("num_processes: 3\nparallelism_config: {parallelism_config_tp_size: 2}\n"), Error);
}

TEST(TrainingOptions, ProcessesAreDividedOverMachines) {
  const test::TemporaryDirectory folder;
  SftOptions sft;
  sft.config_file = (folder.path() / "accelerate.yaml").string();
  const std::string text = "num_processes: 8\nnum_machines: 2\nmachine_rank: 1\n";
  write_file(sft.config_file, text);
  EXPECT_THROW((void)ranks_to_start(sft, {}), Error);
  write_file(sft.config_file, text + "main_process_ip: 10.0.0.1\nmain_process_port: 1234\n");
  const LocalRanks ranks = ranks_to_start(sft, {});
  EXPECT_EQ(ranks.count, 4);
  EXPECT_EQ(ranks.first, 4);
  EXPECT_EQ(ranks.total, 8);
  EXPECT_EQ(ranks.address, "10.0.0.1");
  EXPECT_EQ(ranks.port, 1234);
}

TEST(TrainingOptions, WhatAccelerateSaysOtherwiseIsNamed) {
  SftOptions sft;
  const auto notices = [&](const AccelerateOptions& options) { return accelerate_notices(options, "a", sft, sft); };
  EXPECT_TRUE(notices({}).empty());
  EXPECT_EQ(
      notices({.mixed_precision = "bf16"}),
      (std::vector<std::string>{"a: mixed_precision bf16 has no effect: torch_dtype sets the dtype of computation"}));
  EXPECT_TRUE(notices({.gradient_accumulation_steps = "1", .gradient_clipping = "1.0"}).empty());
  EXPECT_TRUE(notices({.gradient_accumulation_steps = "auto", .gradient_clipping = "auto"}).empty());
  EXPECT_EQ(notices({.gradient_accumulation_steps = "4", .gradient_clipping = "0.2"}),
            (std::vector<std::string>{"a: gradient_accumulation_steps 4 has no effect: the recipe's 1 counts",
                                      "a: gradient_clipping 0.2 has no effect: max_grad_norm 1 counts"}));
  EXPECT_THROW((void)notices({.mixed_precision = "fp16"}), Error);
}

TEST(TrainingOptions, UnsetKeysTakeTheDefaultsOfTheTools) {
  const SftOptions sft;
  EXPECT_EQ(sft.learning_rate, 2e-5);
  EXPECT_EQ(sft.max_length, 1024);
  EXPECT_EQ(sft.per_device_train_batch_size, 8);
  EXPECT_EQ(sft.num_train_epochs, 3);
  EXPECT_EQ(sft.save_steps, 500);
  EXPECT_EQ(sft.logging_steps, 10);
  EXPECT_EQ(sft.seed, 42);
  EXPECT_EQ(sft.lr_scheduler_type, SchedulerType::kLinear);
  EXPECT_EQ(weight_dtype(sft), std::nullopt);
}

TEST(TrainingOptions, ContradictionsGetOneExactLine) {
  const std::vector<std::string> base{"--model_name_or_path", "m", "--dataset_name", "d", "--output_dir", "o"};
  const std::vector<std::pair<std::vector<std::string>, std::string>> table{
      {{}, "no error"},
      {{"--max_steps", "0"}, "--max_steps: saw 0, which leaves nothing to train (-1 trains num_train_epochs)"},
      {{"--save-steps", "2.5"}, "--save_steps: expected a whole number of steps or a share below 1, saw 2.5"},
      {{"--save_steps", "0.25"}, "no error"},
      {{"--packing", "--max_length", "null"},
       "--packing: packing needs a max_length, saw null (set max_length, for example 4096)"},
      {{"--bf16", "--torch_dtype", "float32"},
       "--bf16: f32 weights with bfloat16 GEMMs are not implemented yet (set torch_dtype: bfloat16, or bf16: "
       "false)"},
      {{"--gradient_checkpointing", "--activation_memory_gib", "2"},
       "--activation_memory_gib: gradient_checkpointing true leaves nothing to choose (set gradient_checkpointing: "
       "auto)"},
      {{"--optim", "adafactor"},
       "--optim: 'adafactor' is not implemented yet, expected one of adamw_torch, adamw_bf16, adamw_8bit, "
       "paged_adamw_8bit, paged_adamw_32bit, muon, sgd"},
      {{"--optim", "paged_adamw"}, "no error"},
      {{"--optim", "muon"}, "no error"},
      {{"--optim", "adamw_torch_fused"}, "no error"},
      {{"--optim", "adamw_bnb_8bit"}, "no error"},
      {{"--use_peft", "--lora_target_modules", "q_proj,v_proj", "--use_dora"}, "no error"},
      {{"--lora_task_type", "SEQ_CLS"}, "--lora_task_type: expected one of CAUSAL_LM, saw 'SEQ_CLS'"},
      {{"--lora_r", "0"}, "--lora_r: expected a whole number from 1 to 4096, saw '0'"},
      {{"--loss_type", "dft"}, "no error"},
      {{"--load_in_4bit", "true"}, "--load_in_4bit: 4-bit weights are not offered, saw 'true' (remove the key)"},
      {{"--report_to", "wandb,tensorboard"}, "no error"},
      {{"--report_to", "comet_ml"},
       "--report_to: hone does not report to 'comet_ml', but to tensorboard, wandb, all or none (metrics.jsonl is "
       "always "
       "written)"},
      {{"--learning_rat", "1"}, "--learning_rat: unknown key (did you mean --learning_rate?)"},
      {{"--output_dir="}, "output_dir: is not set (the folder for checkpoints and the final model)"},
  };
  for (const auto& [extra, line] : table) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), extra.begin(), extra.end());
    EXPECT_EQ(error_of<SftOptions>(arguments), line);
  }
}

TEST(TrainingOptions, PretrainingNeedsOneStart) {
  const std::vector<std::string> base{"--dataset_name", "d", "--output_dir", "o"};
  const auto with = [&](std::vector<std::string> extra) {
    extra.insert(extra.end(), base.begin(), base.end());
    return error_of<PretrainOptions>(extra);
  };
  EXPECT_NE(with({}).find("neither it nor model_name_or_path is set"), std::string::npos);
  EXPECT_NE(with({"--model_config_path", "c", "--model_name_or_path", "m"}).find("both"), std::string::npos);
  EXPECT_NE(with({"--model_config_path", "c"}).find("tokenizer_name_or_path: is not set"), std::string::npos);
  EXPECT_EQ(with({"--model_config_path", "c", "--tokenizer_name_or_path", "t"}), "no error");
  EXPECT_EQ(with({"--model_name_or_path", "m"}), "no error");
}

TEST(TrainingOptions, IntervalsBelowOneAreShares) {
  EXPECT_EQ(interval_steps(500, 1000), 500);
  EXPECT_EQ(interval_steps(0.1, 1000), 100);
  EXPECT_EQ(interval_steps(0.1, 15), 2);
  EXPECT_EQ(interval_steps(0.001, 10), 1);
}

TEST(TrainingOptions, ForeignKeysAreNoOptionsAndNamedOnce) {
  SftOptions sft;
  const OptionTable table(sft);
  std::set<std::string_view> names;
  for (const ForeignKey& key : training_foreign_keys()) {
    EXPECT_EQ(table.find(key.name), nullptr) << key.name;
    EXPECT_TRUE(names.insert(key.name).second) << key.name;
    EXPECT_FALSE(key.note.empty()) << key.name;
  }
}

TEST(TrainingOptions, HelpIsFrozen) {
  SftOptions sft;
  PretrainOptions pretrain;
  test::expect_golden("train/sft_options.txt", option_help(OptionTable(sft)));
  test::expect_golden("train/pretrain_options.txt", option_help(OptionTable(pretrain)));
}

}  // namespace
}  // namespace hone
