// hone bench train: full training steps on random tokens.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace hone {

int bench_train(std::span<const std::string> arguments);
[[nodiscard]] std::string bench_train_help();  // its keys
[[nodiscard]] std::vector<CommandKey> bench_train_keys();

}  // namespace hone
