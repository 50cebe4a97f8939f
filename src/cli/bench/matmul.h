// hone bench matmul: measures the FLOP/s of GEMMs over sizes and dtypes, with and without tuning.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace hone {

// Runs the benchmark with the arguments after "matmul" and returns the exit code. Throws Error.
int bench_matmul(std::span<const std::string> arguments);
[[nodiscard]] std::string bench_matmul_help();  // help text of the keys
[[nodiscard]] std::vector<CommandKey> bench_matmul_keys();

}  // namespace hone
