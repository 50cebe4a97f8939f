// hone bench all: runs all benchmarks and writes their results, with the machine described, into one page.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace hone {

// Runs the benchmark with the arguments after "all" and returns the exit code. Throws Error.
int bench_all(std::span<const std::string> arguments);
[[nodiscard]] std::string bench_all_help();  // help text of the keys
[[nodiscard]] std::vector<CommandKey> bench_all_keys();

}  // namespace hone
