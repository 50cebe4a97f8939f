// The pass for programs whose tokens are divided by rows in a tensor group (ops/rank_rows): the backward pass gathers
// the rows of all ranks again instead of keeping them, so that between the passes each rank has its rows only
// (Korthikanti et al., 2022, section 4.2.2). It only clones nodes, so no result changes.
#pragma once

#include "program/program.h"

namespace hone {

// Returns the program with gathers of layers repeated where the backward pass first reads what they have gathered.
[[nodiscard]] Program gather_again(const Program& program);

}  // namespace hone
