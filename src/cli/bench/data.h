// hone bench data: measures each stage between data files and the batches of a training step.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace hone {

// Runs the benchmark with the arguments after "data" and returns the exit code. Throws Error.
int bench_data(std::span<const std::string> arguments);
[[nodiscard]] std::string bench_data_help();  // help text of the keys
[[nodiscard]] std::vector<CommandKey> bench_data_keys();

}  // namespace hone
