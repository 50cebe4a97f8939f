// accelerate's YAML, read as it is: `config_file: accelerate.yaml`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/options.h"

namespace hone {

struct AccelerateOptions {
  std::string distributed_type = "NO";
  std::int64_t num_processes = 1;
  std::int64_t num_machines = 1;
  std::int64_t machine_rank = 0;
  std::string mixed_precision = "no";
  std::string main_process_ip;
  std::int64_t main_process_port = 0;

  template <class Visitor>
  void fields(Visitor& v) {
    v("distributed_type", distributed_type, "How processes share the work");
    v("num_processes", num_processes, "Processes in all", at_least(1));
    v("num_machines", num_machines, "Machines", at_least(1));
    v("machine_rank", machine_rank, "Number of this machine", at_least(0));
    v("mixed_precision", mixed_precision, "no, bf16, fp16 or fp8");
    v("main_process_ip", main_process_ip, "Address of machine 0");
    v("main_process_port", main_process_port, "Port of machine 0", at_least(0));
  }
};

[[nodiscard]] AccelerateOptions read_accelerate(const std::filesystem::path& path);
// Throws Error where the file asks for what one process on one device cannot do.
void check_accelerate(const AccelerateOptions& options, std::string_view file);

}  // namespace hone
