#include "train/accelerate.h"

#include <array>

#include "core/error.h"
#include "core/yaml.h"

namespace hone {
namespace {

constexpr std::string_view kLauncher = "hone launches itself";
constexpr auto kNoEffect = ForeignKey::Kind::no_effect;

constexpr std::array kKeys = std::to_array<ForeignKey>({
    {"compute_environment", kNoEffect, kLauncher},
    {"debug", kNoEffect, kLauncher},
    {"deepspeed_config", kNoEffect, "one process holds all state"},
    {"fsdp_config", kNoEffect, "one process holds all state"},
    {"megatron_lm_config", kNoEffect, "one process holds all state"},
    {"downcast_bf16", kNoEffect, "it is for TPUs"},
    {"tpu_env", kNoEffect, "it is for TPUs"},
    {"tpu_use_cluster", kNoEffect, "it is for TPUs"},
    {"tpu_use_sudo", kNoEffect, "it is for TPUs"},
    {"dynamo_config", kNoEffect, "hone is compiled"},
    {"enable_cpu_affinity", kNoEffect, kLauncher},
    {"gpu_ids", kNoEffect, "device says where to run"},
    {"main_training_function", kNoEffect, kLauncher},
    {"rdzv_backend", kNoEffect, kLauncher},
    {"same_network", kNoEffect, kLauncher},
    {"use_cpu", kNoEffect, "device says where to run"},
});

}  // namespace

AccelerateOptions read_accelerate(const std::filesystem::path& path) {
  AccelerateOptions options;
  OptionInput input;
  const OptionTable table(options);
  read_option_keys(table, read_yaml(path), path.string(), kKeys, input);
  return options;
}

void check_accelerate(const AccelerateOptions& options, std::string_view file) {
  if (options.num_processes > 1 || options.num_machines > 1) {
    throw Error(file,
                text_of("training with ", options.num_processes, " processes on ", options.num_machines,
                        options.num_machines == 1 ? " machine" : " machines", " is not implemented yet"),
                "set num_processes and num_machines to 1, or leave config_file out");
  }
  if (options.mixed_precision == "fp16" || options.mixed_precision == "fp8") {
    throw Error(file, text_of("mixed_precision ", options.mixed_precision, " is not offered"), "use bf16");
  }
}

}  // namespace hone
