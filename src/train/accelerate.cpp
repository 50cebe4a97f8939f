#include "train/accelerate.h"

#include <array>

#include "core/error.h"
#include "core/strings.h"
#include "core/yaml.h"

namespace hone {
namespace {

constexpr std::string_view kLauncher = "hone launches itself";
constexpr std::string_view kOneProcess = "one process trains, on one device, and holds all state";
constexpr std::string_view kTpu = "hone runs on no TPU";
constexpr auto kNoEffect = ForeignKey::Kind::no_effect;

constexpr std::array kKeys = std::to_array<ForeignKey>({
    {"compute_environment", kNoEffect, kLauncher, "LOCAL_MACHINE"},
    {"debug", kNoEffect, kLauncher},
    {"command_file", kNoEffect, kLauncher},
    {"commands", kNoEffect, kLauncher},
    {"enable_cpu_affinity", kNoEffect, kLauncher},
    {"main_training_function", kNoEffect, kLauncher, "main"},
    {"rdzv_backend", kNoEffect, kLauncher, "static"},
    {"same_network", kNoEffect, kLauncher, "true"},
    {"dynamo_config", kNoEffect, "hone is compiled"},
    {"dynamo_backend", kNoEffect, "hone is compiled", "NO"},
    {"gpu_ids", kNoEffect, "device says where to run", "all"},
    {"use_cpu", kNoEffect, "device: cpu runs on the host"},
    {"ipex_config", kNoEffect, "hone has kernels of its own"},
    {"mpirun_config", kNoEffect, kOneProcess},
    {"megatron_lm_config", kNoEffect, kOneProcess},
    {"parallelism_config", kNoEffect, kOneProcess},
    {"downcast_bf16", kNoEffect, kTpu},
    {"tpu_env", kNoEffect, kTpu},
    {"tpu_name", kNoEffect, kTpu},
    {"tpu_zone", kNoEffect, kTpu},
    {"tpu_use_cluster", kNoEffect, kTpu},
    {"tpu_use_sudo", kNoEffect, kTpu},
    {"deepspeed_config.deepspeed_config_file", kNoEffect, kOneProcess},
    {"deepspeed_config.deepspeed_hostfile", kNoEffect, kLauncher},
    {"deepspeed_config.deepspeed_multinode_launcher", kNoEffect, kLauncher, "standard"},
    {"deepspeed_config.deepspeed_exclusion_filter", kNoEffect, kLauncher},
    {"deepspeed_config.deepspeed_inclusion_filter", kNoEffect, kLauncher},
    {"deepspeed_config.deepspeed_moe_layer_cls_names", kNoEffect, kOneProcess},
    {"deepspeed_config.zero_stage", kNoEffect, kOneProcess, "0"},
    {"deepspeed_config.zero3_init_flag", kNoEffect, kOneProcess},
    {"deepspeed_config.zero3_save_16bit_model", kNoEffect, "checkpoints are whole models, in torch_dtype", "true"},
    {"deepspeed_config.offload_optimizer_device", kNoEffect,
     "optim: paged_adamw_32bit keeps optimizer states on the host"},
    {"deepspeed_config.offload_optimizer_nvme_path", kNoEffect, "nothing is kept on disks"},
    {"deepspeed_config.offload_param_device", kNoEffect, "weights stay on the device"},
    {"deepspeed_config.offload_param_nvme_path", kNoEffect, "nothing is kept on disks"},
    {"fsdp_config.fsdp_version", kNoEffect, kOneProcess},
    {"fsdp_config.fsdp_reshard_after_forward", kNoEffect, kOneProcess},
    {"fsdp_config.fsdp_sharding_strategy", kNoEffect, kOneProcess},
    {"fsdp_config.fsdp_auto_wrap_policy", kNoEffect, kOneProcess},
    {"fsdp_config.fsdp_transformer_layer_cls_to_wrap", kNoEffect, kOneProcess},
    {"fsdp_config.fsdp_min_num_params", kNoEffect, kOneProcess},
    {"fsdp_config.fsdp_backward_prefetch", kNoEffect, kOneProcess},
    {"fsdp_config.fsdp_backward_prefetch_policy", kNoEffect, kOneProcess},
    {"fsdp_config.fsdp_forward_prefetch", kNoEffect, kOneProcess},
    {"fsdp_config.fsdp_sync_module_states", kNoEffect, kOneProcess},
    {"fsdp_config.fsdp_use_orig_params", kNoEffect, kOneProcess},
    {"fsdp_config.fsdp_cpu_ram_efficient_loading", kNoEffect, kOneProcess},
    {"fsdp_config.fsdp_state_dict_type", kNoEffect, "checkpoints are whole models, in torch_dtype"},
    {"fsdp_config.fsdp_offload_params", kNoEffect, "weights stay on the device"},
    {"fsdp_config.fsdp_activation_checkpointing", kNoEffect, "gradient_checkpointing says what is recomputed"},
});

// Whether the file sets a number that is not the recipe's.
bool differs(const std::string& text, double value) {
  if (text.empty() || text == "auto" || text == "null") return false;
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  return *end != '\0' || number != value;
}

std::string batch_notice(const AccelerateOptions& accelerate, std::string_view file, const TrainingOptions& training) {
  const std::int64_t micro = training.per_device_train_batch_size;
  const std::int64_t accumulation = training.gradient_accumulation_steps;
  const std::int64_t processes = accelerate.num_processes;
  return text_of(file, ": num_processes is ", processes, ", but one process trains, on one device: a step takes ",
                 micro, " x ", accumulation, " = ", format_count(micro * accumulation), " sequences, not ",
                 format_count(micro * accumulation * processes),
                 " (gradient_accumulation_steps: ", accumulation * processes, " keeps that)");
}

}  // namespace

AccelerateOptions read_accelerate(const std::filesystem::path& path, OptionInput& input) {
  AccelerateOptions options;
  const OptionTable table(options);
  read_option_keys(table, read_yaml(path), path.string(), kKeys, input);
  return options;
}

std::vector<std::string> accelerate_notices(const AccelerateOptions& accelerate, std::string_view file,
                                            const ModelOptions& model, const TrainingOptions& training) {
  if (accelerate.mixed_precision == "fp16" || accelerate.mixed_precision == "fp8") {
    throw Error(file, text_of("mixed_precision ", accelerate.mixed_precision, " is not offered"), "use bf16");
  }
  std::vector<std::string> notices;
  if (accelerate.num_processes > 1) notices.push_back(batch_notice(accelerate, file, training));
  if (accelerate.mixed_precision == "bf16" && weight_dtype(model) != DType::bf16) {
    notices.push_back(text_of(file, ": mixed_precision bf16 has no effect: torch_dtype says what is computed in"));
  }
  if (differs(accelerate.gradient_accumulation_steps, static_cast<double>(training.gradient_accumulation_steps))) {
    notices.push_back(text_of(file, ": gradient_accumulation_steps ", accelerate.gradient_accumulation_steps,
                              " has no effect: the recipe's ", training.gradient_accumulation_steps, " counts"));
  }
  if (differs(accelerate.gradient_clipping, training.max_grad_norm)) {
    notices.push_back(text_of(file, ": gradient_clipping ", accelerate.gradient_clipping,
                              " has no effect: max_grad_norm ", training.max_grad_norm, " counts"));
  }
  return notices;
}

}  // namespace hone
