// hone bench kernels: every operation of a training step, alone.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace hone {

int bench_kernels(std::span<const std::string> arguments);
[[nodiscard]] std::string bench_kernels_help();  // its keys
[[nodiscard]] std::vector<CommandKey> bench_kernels_keys();

}  // namespace hone
