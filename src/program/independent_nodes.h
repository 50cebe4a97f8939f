// Successive nodes that may run in one launch.
#pragma once

#include <cstddef>

#include "program/program.h"

namespace hone {

// Returns the end of the longest run of nodes that begins with node `first`, has one operation, and in which no node
// reads or writes what another one writes. It has at least one node.
[[nodiscard]] std::size_t end_of_independent_nodes(const Program& program, std::size_t first);

}  // namespace hone
