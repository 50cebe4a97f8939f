// Replaces nodes by fused operations; each fused operation knows its own pattern, of the forward pass or of a node and
// its backward pass, and its place among the others (FusedOp). A fused operation rounds where its parts round, so the
// numbers stay the same.
#pragma once

#include <cstdint>

#include "program/program.h"

namespace hone {

// Which nodes may become one.
enum class FusionReach : std::uint8_t {
  layer,    // those of one layer: recomputation keeps what crosses from layer to layer, and that alone
  program,  // all
};

// A fused node takes the place of its first; what its inputs depend on and comes later moves in front of it.
[[nodiscard]] Program fuse(const Program& program, FusionReach reach = FusionReach::layer,
                           const OpRegistry& registry = op_registry());

}  // namespace hone
