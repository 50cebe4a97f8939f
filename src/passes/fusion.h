// The fusion pass: replaces groups of nodes with fused operations.
//
// Each fused operation (FusedOp) recognizes its own pattern, either in the forward pass or across a node and its
// backward pass, and declares the order in which patterns are tried. A fused operation rounds wherever its parts round,
// so fusion changes no result.
#pragma once

#include <cstdint>

#include "program/program.h"

namespace hone {

// The nodes that may be fused with each other.
enum class FusionScope : std::uint8_t {
  kLayer,      // nodes of one layer, because recomputation keeps exactly the values that cross from layer to layer
  kProgram,    // all nodes
  kInference,  // all nodes of a program of which no gradients are taken
};

// Returns `program` with every pattern that `registry` recognizes fused. A fused node takes the position of the first
// node that it replaces. Later nodes that its inputs depend on move in front of it.
[[nodiscard]] Program fuse(const Program& program, FusionScope reach = FusionScope::kLayer,
                           const OpRegistry& registry = op_registry());

}  // namespace hone
