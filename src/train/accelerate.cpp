#include "train/accelerate.h"

#include <array>

#include "core/error.h"
#include "core/strings.h"
#include "core/yaml.h"
#include "train/foreign_keys.h"

namespace hone {
namespace {

constexpr std::string_view kLauncher = "hone launches itself";
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
    {"mpirun_config", kUnused, kWholeModel},
    {"megatron_lm_config", kUnused, kWholeModel},
    {"parallelism_config", kUnused, kWholeModel},
    {"downcast_bf16", kUnused, kTpu},
    {"tpu_env", kUnused, kTpu},
    {"tpu_name", kUnused, kTpu},
    {"tpu_zone", kUnused, kTpu},
    {"tpu_use_cluster", kUnused, kTpu},
    {"tpu_use_sudo", kUnused, kTpu},
    {"deepspeed_config.deepspeed_config_file", kUnused, kWholeModel},
    {"deepspeed_config.deepspeed_hostfile", kUnused, kLauncher},
    {"deepspeed_config.deepspeed_multinode_launcher", kUnused, kLauncher, "standard"},
    {"deepspeed_config.deepspeed_exclusion_filter", kUnused, kLauncher},
    {"deepspeed_config.deepspeed_inclusion_filter", kUnused, kLauncher},
    {"deepspeed_config.deepspeed_moe_layer_cls_names", kUnused, kWholeModel},
    {"deepspeed_config.zero3_init_flag", kUnused, kWholeModel},
    {"deepspeed_config.zero3_save_16bit_model", kUnused, "checkpoints are whole models, in torch_dtype", "true"},
    {"deepspeed_config.offload_optimizer_device", kUnused,
     "optim: paged_adamw_32bit keeps optimizer states on the host"},
    {"deepspeed_config.offload_optimizer_nvme_path", kUnused, "nothing is offloaded to disks"},
    {"deepspeed_config.offload_param_device", kUnused, "weights stay on the device"},
    {"deepspeed_config.offload_param_nvme_path", kUnused, "nothing is offloaded to disks"},
    {"fsdp_config.fsdp_version", kUnused, kWholeModel},
    {"fsdp_config.fsdp_reshard_after_forward", kUnused, kWholeModel},
    {"fsdp_config.fsdp_sharding_strategy", kUnused, kWholeModel},
    {"fsdp_config.fsdp_auto_wrap_policy", kUnused, kWholeModel},
    {"fsdp_config.fsdp_transformer_layer_cls_to_wrap", kUnused, kWholeModel},
    {"fsdp_config.fsdp_min_num_params", kUnused, kWholeModel},
    {"fsdp_config.fsdp_backward_prefetch", kUnused, kWholeModel},
    {"fsdp_config.fsdp_backward_prefetch_policy", kUnused, kWholeModel},
    {"fsdp_config.fsdp_forward_prefetch", kUnused, kWholeModel},
    {"fsdp_config.fsdp_sync_module_states", kUnused, kWholeModel},
    {"fsdp_config.fsdp_use_orig_params", kUnused, kWholeModel},
    {"fsdp_config.fsdp_cpu_ram_efficient_loading", kUnused, kWholeModel},
    {"fsdp_config.fsdp_state_dict_type", kUnused, "checkpoints are whole models, in torch_dtype"},
    {"fsdp_config.fsdp_offload_params", kUnused, "weights stay on the device"},
    {"fsdp_config.fsdp_activation_checkpointing", kUnused, "gradient_checkpointing says what is recomputed"},
});

// Returns true if the file sets a number that differs from the value in the recipe.
bool differs(const std::string& text, double value) {
  if (text.empty() || text == "auto" || text == "null") return false;
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  return *end != '\0' || number != value;
}

// Throws Error if the model is to be divided over processes.
void check_division(const AccelerateOptions& accelerate, std::string_view file, std::int64_t processes) {
  if (processes == 1) return;
  if (accelerate.distributed_type == "FSDP" || accelerate.distributed_type == "MEGATRON_LM") {
    throw Error(file, text_of("distributed_type ", accelerate.distributed_type, " is not implemented yet"),
                "set it to MULTI_GPU: each process then holds the whole model");
  }
}

}  // namespace

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
  check_division(accelerate, file, training.num_processes.value_or(accelerate.num_processes));
  if (accelerate.mixed_precision == "bf16" && weight_dtype(model) != DType::kBf16) {
    notices.push_back(text_of(file, ": mixed_precision bf16 has no effect: torch_dtype sets the dtype of computation"));
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
