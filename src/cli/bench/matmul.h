// hone bench matmul: matrix products over sizes and types.
#pragma once

#include <span>
#include <string>

namespace hone {

int bench_matmul(std::span<const std::string> arguments);
[[nodiscard]] std::string bench_matmul_keys();  // as help shows them

}  // namespace hone
