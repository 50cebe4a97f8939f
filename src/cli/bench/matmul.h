// hone bench matmul: matrix products over sizes and types.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"

namespace hone {

int bench_matmul(std::span<const std::string> arguments);
[[nodiscard]] std::string bench_matmul_help();  // its keys
[[nodiscard]] std::vector<CommandKey> bench_matmul_keys();

}  // namespace hone
