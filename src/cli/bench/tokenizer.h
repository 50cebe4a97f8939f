// hone bench tokenizer: measures how fast text becomes tokens and tokens become text.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace hone {

// Runs the benchmark with the arguments after "tokenizer" and returns the exit code. Throws Error.
int bench_tokenizer(std::span<const std::string> arguments);
[[nodiscard]] std::string bench_tokenizer_help();  // help text of the keys
[[nodiscard]] std::vector<CommandKey> bench_tokenizer_keys();

}  // namespace hone
