// hone bench kernels: every operation of a training step, alone.
#pragma once

#include <span>
#include <string>

namespace hone {

int bench_kernels(std::span<const std::string> arguments);
[[nodiscard]] std::string bench_kernels_keys();  // as help shows them

}  // namespace hone
