// Replaces nodes by fused operations; each fused operation knows its own pattern (Op::fuse). A fused operation rounds
// where its parts round, so the numbers stay the same. Nodes of different layers are not fused.
#pragma once

#include "program/program.h"

namespace hone {

[[nodiscard]] Program fuse_forward(const Program& program);

}  // namespace hone
