// hone bench scaling: measures how training speed grows with the number of processes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace hone {

// Runs the benchmark with the arguments after "scaling" and returns the exit code. Throws Error.
int bench_scaling(std::span<const std::string> arguments);
[[nodiscard]] std::string bench_scaling_help();  // help text of the keys
[[nodiscard]] std::vector<CommandKey> bench_scaling_keys();

}  // namespace hone
