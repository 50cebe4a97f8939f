// hone bench decode: measures how fast the generation engine decodes, over numbers of streams and lengths of context.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace hone {

// Runs the benchmark with the arguments after "decode" and returns the exit code. Throws Error.
int bench_decode(std::span<const std::string> arguments);
[[nodiscard]] std::string bench_decode_help();  // help text of the keys
[[nodiscard]] std::vector<CommandKey> bench_decode_keys();

}  // namespace hone
