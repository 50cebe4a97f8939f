// hone bench grpo: measures GRPO steps of a model with random weights, phase by phase.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace hone {

// Runs the benchmark with the arguments after "grpo" and returns the exit code. Throws Error.
int bench_grpo(std::span<const std::string> arguments);
[[nodiscard]] std::string bench_grpo_help();  // help text of the keys
[[nodiscard]] std::vector<CommandKey> bench_grpo_keys();

}  // namespace hone
