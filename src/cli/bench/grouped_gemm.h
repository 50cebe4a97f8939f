// hone bench grouped_gemm: measures the GEMMs of a mixture of experts, forward and backward.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace hone {

// Runs the benchmark with the arguments after "grouped_gemm" and returns the exit code. Throws Error.
int bench_grouped_gemm(std::span<const std::string> arguments);
[[nodiscard]] std::string bench_grouped_gemm_help();  // help text of the keys
[[nodiscard]] std::vector<CommandKey> bench_grouped_gemm_keys();

}  // namespace hone
