// hone bench kernels: times each operation of a training step in isolation and compares it with the device's limits.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace hone {

// Runs the benchmark with the arguments after "kernels" and returns the exit code. Throws Error.
int bench_kernels(std::span<const std::string> arguments);
[[nodiscard]] std::string bench_kernels_help();  // help text of the keys
[[nodiscard]] std::vector<CommandKey> bench_kernels_keys();

}  // namespace hone
