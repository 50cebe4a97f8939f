// hone bench collectives: measures sums and copies between the devices of several processes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace hone {

// Runs the benchmark with the arguments after "collectives" and returns the exit code. Throws Error.
int bench_collectives(std::span<const std::string> arguments);
[[nodiscard]] std::string bench_collectives_help();  // help text of the keys
[[nodiscard]] std::vector<CommandKey> bench_collectives_keys();

}  // namespace hone
