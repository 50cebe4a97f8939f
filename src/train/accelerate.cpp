#include "train/accelerate.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/strings.h"
#include "core/yaml.h"

namespace hone {
namespace {

constexpr std::string_view kLauncher = "hone launches itself";
constexpr std::string_view kRecomputation = "gradient_checkpointing says what is recomputed";
constexpr std::string_view kByLayer = "layers are gathered one after the other";
constexpr std::string_view kReadsParts = "each process reads what it needs of the weights";
constexpr std::string_view kTpu = "hone does not support TPUs";
constexpr auto kUnused = ForeignKey::Kind::kNoEffect;

constexpr std::array kAccelerateKeys = std::to_array<ForeignKey>({
    {"compute_environment", kUnused, kLauncher, "LOCAL_MACHINE"},
    {"debug", kUnused, kLauncher},
    {"command_file", kUnused, kLauncher},
    {"commands", kUnused, kLauncher},
    {"enable_cpu_affinity", kUnused, kLauncher},
    {"main_training_function", kUnused, kLauncher, "main"},
    {"rdzv_backend", kUnused, kLauncher, "static"},
    {"same_network", kUnused, kLauncher, "true"},
    {"dynamo_config", kUnused, "hone is compiled"},
    {"dynamo_backend", kUnused, "hone is compiled", "NO"},
    {"gpu_ids", kUnused, "device says where to run", "all"},
    {"use_cpu", kUnused, "device: cpu runs on the host"},
    {"ipex_config", kUnused, "hone uses its own kernels"},
    {"mpirun_config", kUnused, kLauncher},
    {"megatron_lm_config.megatron_lm_num_micro_batches", kUnused,
     "gradient_accumulation_steps says how many there are"},
    {"megatron_lm_config.megatron_lm_recompute_activations", kUnused, kRecomputation},
    {"megatron_lm_config.megatron_lm_learning_rate_decay_iters", kUnused, "lr_scheduler_type says how it decays"},
    {"parallelism_config.parallelism_config_cp_comm_strategy", kUnused, "keys and values are gathered"},
    {"parallelism_config.parallelism_config_cp_backend", kUnused, "hone attends over processes itself"},
    {"parallelism_config.parallelism_config_sp_size", kUnused, "context_parallel_size divides sequences", "1"},
    {"downcast_bf16", kUnused, kTpu},
    {"tpu_env", kUnused, kTpu},
    {"tpu_name", kUnused, kTpu},
    {"tpu_zone", kUnused, kTpu},
    {"tpu_use_cluster", kUnused, kTpu},
    {"tpu_use_sudo", kUnused, kTpu},
    {"deepspeed_config.deepspeed_config_file", kUnused, "DeepSpeed's own file is not read: set zero_stage"},
    {"deepspeed_config.deepspeed_hostfile", kUnused, kLauncher},
    {"deepspeed_config.deepspeed_multinode_launcher", kUnused, kLauncher, "standard"},
    {"deepspeed_config.deepspeed_exclusion_filter", kUnused, kLauncher},
    {"deepspeed_config.deepspeed_inclusion_filter", kUnused, kLauncher},
    {"deepspeed_config.deepspeed_moe_layer_cls_names", kUnused, "expert_parallel_size divides experts"},
    {"deepspeed_config.zero3_init_flag", kUnused, kReadsParts},
    {"deepspeed_config.zero3_save_16bit_model", kUnused, "checkpoints are whole models, in torch_dtype", "true"},
    {"deepspeed_config.offload_optimizer_device", kUnused,
     "optim: paged_adamw_32bit keeps optimizer states on the host"},
    {"deepspeed_config.offload_optimizer_nvme_path", kUnused, "nothing is offloaded to disks"},
    {"deepspeed_config.offload_param_device", kUnused, "weights stay on the device"},
    {"deepspeed_config.offload_param_nvme_path", kUnused, "nothing is offloaded to disks"},
    {"fsdp_config.fsdp_auto_wrap_policy", kUnused, kByLayer},
    {"fsdp_config.fsdp_transformer_layer_cls_to_wrap", kUnused, kByLayer},
    {"fsdp_config.fsdp_min_num_params", kUnused, kByLayer},
    {"fsdp_config.fsdp_backward_prefetch", kUnused, kByLayer},
    {"fsdp_config.fsdp_backward_prefetch_policy", kUnused, kByLayer},
    {"fsdp_config.fsdp_forward_prefetch", kUnused, kByLayer},
    {"fsdp_config.fsdp_sync_module_states", kUnused, kReadsParts},
    {"fsdp_config.fsdp_use_orig_params", kUnused, "weights keep their names"},
    {"fsdp_config.fsdp_cpu_ram_efficient_loading", kUnused, kReadsParts},
    {"fsdp_config.fsdp_state_dict_type", kUnused, "checkpoints are whole models, in torch_dtype"},
    {"fsdp_config.fsdp_offload_params", kUnused, "weights stay on the device"},
    {"fsdp_config.fsdp_activation_checkpointing", kUnused, kRecomputation},
});

// Returns true if the file sets a number that differs from the value in the recipe.
bool differs(const std::string& text, double value) {
  if (text.empty() || text == "auto" || text == "null") return false;
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  return *end != '\0' || number != value;
}

// The stage of deepspeed_config; nullopt if it has none, or "auto".
std::optional<std::int64_t> deepspeed_stage(const AccelerateOptions& accelerate, std::string_view file) {
  const std::string& stage = accelerate.zero_stage;
  if (stage.empty() || stage == "auto" || stage == "null") return std::nullopt;
  if (stage.size() == 1 && stage[0] >= '0' && stage[0] <= '3') return stage[0] - '0';
  throw Error(file, text_of("zero_stage: expected 0, 1, 2 or 3, saw ", shown(std::string_view(stage))));
}

// Strategies of fsdp_version 1, by name and number, and the stage of ZeRO that divides the same.
struct FsdpStrategy {
  std::string_view name, number;
  std::int64_t zero_stage;
  bool is_hybrid = false;  // divides within a machine
};
constexpr std::array kFsdpStrategies = std::to_array<FsdpStrategy>({
    {"FULL_SHARD", "1", 3},
    {"SHARD_GRAD_OP", "2", 2},
    {"NO_SHARD", "3", 0},
    {"HYBRID_SHARD", "4", 3, true},
    {"HYBRID_SHARD_ZERO2", "5", 2, true},
});

std::int64_t fsdp_stage(const AccelerateOptions& accelerate, std::string_view file) {
  const std::string& after = accelerate.fsdp_reshard_after_forward;
  if (accelerate.fsdp_version == 2) {
    if (after.empty() || after == "true") return 3;
    if (after == "false") return 2;
    throw Error(file, text_of("fsdp_reshard_after_forward: expected true or false with fsdp_version 2, saw ",
                              shown(std::string_view(after))));
  }
  const bool has_name = after.empty() || after == "true" || after == "false";
  const std::string& text = has_name ? accelerate.fsdp_sharding_strategy : after;
  if (text.empty()) return 3;
  const auto found = std::ranges::find_if(
      kFsdpStrategies, [&](const FsdpStrategy& strategy) { return strategy.name == text || strategy.number == text; });
  if (found == kFsdpStrategies.end()) {
    throw Error(file,
                text_of("fsdp_sharding_strategy: expected one of FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, "
                        "HYBRID_SHARD_ZERO2, saw ",
                        shown(std::string_view(text))));
  }
  if (found->is_hybrid && accelerate.num_machines > 1) {
    throw Error(file,
                text_of("fsdp_sharding_strategy ", found->name, " over ", accelerate.num_machines,
                        " machines: hone divides over all processes"),
                "use FULL_SHARD or SHARD_GRAD_OP");
  }
  return found->zero_stage;
}

// Throws Error unless the sizes of parallelism_config, where it is set, make up the processes.
void check_sizes(const AccelerateOptions& accelerate, std::string_view file) {
  const std::int64_t product =
      accelerate.dp_replicate_size * accelerate.dp_shard_size * accelerate.tp_size * accelerate.cp_size;
  if (product == 1 || product == accelerate.num_processes) return;
  throw Error(file,
              text_of("the sizes of parallelism_config make ", product, " processes, num_processes is ",
                      accelerate.num_processes),
              "set num_processes to their product");
}

}  // namespace

AccelerateDivision division_of(const AccelerateOptions& accelerate, std::string_view file) {
  check_sizes(accelerate, file);
  AccelerateDivision division{.tensor_parallel_size = accelerate.tp_size, .context_parallel_size = accelerate.cp_size};
  const std::string& type = accelerate.distributed_type;
  division.zero_stage = deepspeed_stage(accelerate, file);
  if (type == "FSDP") division.zero_stage = fsdp_stage(accelerate, file);
  if (type == "MEGATRON_LM") {
    division.tensor_parallel_size = accelerate.megatron_lm_tp_degree;
    division.pipeline_parallel_size = accelerate.megatron_lm_pp_degree;
    division.sequence_parallel = accelerate.megatron_lm_sequence_parallelism && accelerate.megatron_lm_tp_degree > 1;
    if (accelerate.megatron_lm_use_distributed_optimizer) division.zero_stage = 1;
  }
  return division;
}

AccelerateOptions read_accelerate(const std::filesystem::path& path, OptionInput& input) {
  AccelerateOptions options;
  const OptionTable table(options);
  read_option_keys(table, read_yaml(path), path.string(), kAccelerateKeys, input);
  return options;
}

std::vector<std::string> accelerate_notices(const AccelerateOptions& accelerate, std::string_view file,
                                            const ModelOptions& model, const TrainingOptions& training) {
  if (accelerate.mixed_precision == "fp16" || accelerate.mixed_precision == "fp8") {
    throw Error(file, text_of("mixed_precision ", accelerate.mixed_precision, " is not offered"), "use bf16");
  }
  std::vector<std::string> notices;
  (void)division_of(accelerate, file);
  if (accelerate.mixed_precision == "bf16" && weight_dtype(model) != DType::kBf16) {
    notices.push_back(text_of(file, ": mixed_precision bf16 has no effect: torch_dtype sets the dtype of computation"));
  }
  if (differs(accelerate.gradient_accumulation_steps, static_cast<double>(training.gradient_accumulation_steps))) {
    notices.push_back(text_of(file, ": gradient_accumulation_steps ", accelerate.gradient_accumulation_steps,
                              " has no effect: the recipe's ", training.gradient_accumulation_steps, " counts"));
  }
  for (const std::string& clipping : {accelerate.gradient_clipping, accelerate.megatron_lm_gradient_clipping}) {
    if (!differs(clipping, training.max_grad_norm)) continue;
    notices.push_back(text_of(file, ": gradient_clipping ", clipping, " has no effect: max_grad_norm ",
                              training.max_grad_norm, " counts"));
  }
  return notices;
}

}  // namespace hone
