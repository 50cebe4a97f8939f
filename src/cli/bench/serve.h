// hone bench serve: sends requests to an OpenAI-compatible server and measures how fast it answers.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace hone {

// Runs the benchmark with the arguments after "serve" and returns the exit code. Throws Error.
int bench_serve(std::span<const std::string> arguments);
[[nodiscard]] std::string bench_serve_help();  // help text of the keys
[[nodiscard]] std::vector<CommandKey> bench_serve_keys();

}  // namespace hone
