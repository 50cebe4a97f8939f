// Reads the configuration file of Hugging Face accelerate, unchanged: `config_file: accelerate.yaml`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
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
  }
};

// Reads the file. Keys without effect are added to the notices of `input`. Throws Error if the file is invalid or has a
// key that accelerate does not know.
[[nodiscard]] AccelerateOptions read_accelerate(const std::filesystem::path& path, OptionInput& input);

// Returns notices about a file: which of its values the recipe overrides. Throws Error if the file asks for a precision
// or a division of the model that is not supported.
[[nodiscard]] std::vector<std::string> accelerate_notices(const AccelerateOptions& accelerate, std::string_view file,
                                                          const ModelOptions& model, const TrainingOptions& training);

}  // namespace hone
