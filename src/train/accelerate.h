// Reads the configuration file of Hugging Face accelerate, unchanged: `config_file: accelerate.yaml`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/options.h"
#include "train/options.h"

namespace hone {

struct AccelerateOptions {
  std::string distributed_type = "NO";
  std::int64_t num_processes = 1;
  std::int64_t num_machines = 1;
  std::int64_t machine_rank = 0;
  std::string mixed_precision = "no";
  std::string main_process_ip;
  std::int64_t main_process_port = 0;
  // Values of deepspeed_config: a number, or "auto".
  std::string gradient_accumulation_steps;
  std::string gradient_clipping;
  std::string zero_stage;
  // Values of fsdp_config. fsdp_version 1 has its strategies, by name or number, in either key; 2 has true and false.
  std::int64_t fsdp_version = 1;
  std::string fsdp_sharding_strategy;
  std::string fsdp_reshard_after_forward;
  // Values of megatron_lm_config.
  std::int64_t megatron_lm_tp_degree = 1;
  std::int64_t megatron_lm_pp_degree = 1;
  bool megatron_lm_sequence_parallelism = false;
  bool megatron_lm_use_distributed_optimizer = false;
  std::string megatron_lm_gradient_clipping;
  // Values of parallelism_config.
  std::int64_t dp_replicate_size = 1;
  std::int64_t dp_shard_size = 1;
  std::int64_t tp_size = 1;
  std::int64_t cp_size = 1;

  template <class Visitor>
  void fields(Visitor& v) {
    v("distributed_type", distributed_type, "How processes share the work");
    v("num_processes", num_processes, "Processes in all", within(1, 1'000'000));
    v("num_machines", num_machines, "Machines", within(1, 1'000'000));
    v("machine_rank", machine_rank, "Number of this machine", at_least(0));
    v("mixed_precision", mixed_precision, "no, bf16, fp16 or fp8");
    v("main_process_ip", main_process_ip, "Address of machine 0");
    v("main_process_port", main_process_port, "Port of machine 0", at_least(0));
    v("deepspeed_config.gradient_accumulation_steps", gradient_accumulation_steps, "Micro-steps an optimizer step");
    v("deepspeed_config.gradient_clipping", gradient_clipping, "The largest norm of gradients");
    v("deepspeed_config.zero_stage", zero_stage, "What is divided over the processes");
    v("fsdp_config.fsdp_version", fsdp_version, "FSDP's version", within(1, 2));
    v("fsdp_config.fsdp_sharding_strategy", fsdp_sharding_strategy, "What is divided over the processes, version 1");
    v("fsdp_config.fsdp_reshard_after_forward", fsdp_reshard_after_forward,
      "Whether weights are divided, or the strategy");
    const Range degree = within(1, 1024);
    v("megatron_lm_config.megatron_lm_tp_degree", megatron_lm_tp_degree, "Processes that divide a layer", degree);
    v("megatron_lm_config.megatron_lm_pp_degree", megatron_lm_pp_degree, "Stages of a pipeline", degree);
    v("megatron_lm_config.megatron_lm_sequence_parallelism", megatron_lm_sequence_parallelism,
      "Divide the tokens of norms too");
    v("megatron_lm_config.megatron_lm_use_distributed_optimizer", megatron_lm_use_distributed_optimizer,
      "Divide the optimizer states");
    v("megatron_lm_config.megatron_lm_gradient_clipping", megatron_lm_gradient_clipping,
      "The largest norm of gradients");
    v("parallelism_config.parallelism_config_dp_replicate_size", dp_replicate_size, "Copies of the model", degree);
    v("parallelism_config.parallelism_config_dp_shard_size", dp_shard_size, "Processes that divide a copy", degree);
    v("parallelism_config.parallelism_config_tp_size", tp_size, "Processes that divide a layer", degree);
    v("parallelism_config.parallelism_config_cp_size", cp_size, "Processes that divide a sequence", degree);
  }
};

// The division of model and data that a file asks for, as the keys of hone that have the same effect.
struct AccelerateDivision {
  std::optional<std::int64_t> zero_stage;
  std::int64_t tensor_parallel_size = 1;
  std::int64_t pipeline_parallel_size = 1;
  std::int64_t context_parallel_size = 1;
  bool sequence_parallel = false;
};

// Returns the division that a file asks for:
//   DEEPSPEED     zero_stage
//   FSDP          zero_stage 3 for FULL_SHARD and weights that are divided again after the forward pass, 2 for
//                 SHARD_GRAD_OP and weights that are not, 0 for NO_SHARD; hybrid strategies like those without "hybrid"
//   MEGATRON_LM   groups of the two degrees, sequence_parallel, and zero_stage 1 for its distributed optimizer
//   parallelism_config   tensor and context groups, for each type
// `file` names it in errors. Throws Error for values that accelerate does not know, sizes of parallelism_config whose
// product is not num_processes, and a hybrid strategy over several machines: hone divides over all processes.
[[nodiscard]] AccelerateDivision division_of(const AccelerateOptions& accelerate, std::string_view file);

// Reads the file. Keys without effect are added to the notices of `input`. Throws Error if the file is invalid or has a
// key that accelerate does not know.
[[nodiscard]] AccelerateOptions read_accelerate(const std::filesystem::path& path, OptionInput& input);

// Returns notices about a file: which of its values the recipe overrides. Throws Error if the file asks for a precision
// that is not supported, or as division_of() does.
[[nodiscard]] std::vector<std::string> accelerate_notices(const AccelerateOptions& accelerate, std::string_view file,
                                                          const ModelOptions& model, const TrainingOptions& training);

}  // namespace hone
