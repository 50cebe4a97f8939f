// Runs of a program: consecutive nodes of the same layer and phase. Passes that overlap copies with computation count
// in them.
#pragma once

#include <cstddef>
#include <vector>

#include "program/program.h"

namespace hone {

// Returns the number of the run of each node, [nodes], from 0.
[[nodiscard]] std::vector<std::size_t> layer_runs(const Program& program);

}  // namespace hone
