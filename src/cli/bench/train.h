// hone bench train: measures tokens/s and MFU of complete training steps on random tokens.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace hone {

// Runs the benchmark with the arguments after "train" and returns the exit code. Throws Error.
int bench_train(std::span<const std::string> arguments);
[[nodiscard]] std::string bench_train_help();  // help text of the keys
[[nodiscard]] std::vector<CommandKey> bench_train_keys();

}  // namespace hone
