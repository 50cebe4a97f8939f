// A kind of fused operation, and a pattern that several of them have.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "program/op.h"
#include "program/program.h"

namespace hone {

// A fused operation without a gradient: nothing that a backward pass would read is left of what it replaces. Only
// programs without gradients have it.
class InferenceFusedOp : public FusedOp {};

// Returns the fusion of node `first`, an `op`, with the `reader` that alone reads its only output, as its first input;
// nullopt if there is none. The inputs are those of the first node, then those of the second without that one.
// Attributes and outputs are those of the second.
[[nodiscard]] std::optional<Fusion> fused_with_reader(const Program& program, std::size_t first, std::string_view op,
                                                      std::string_view reader);

}  // namespace hone
