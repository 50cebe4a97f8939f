// The offload pass: activations that the backward pass reads much later are kept in host memory in the meantime, which
// frees device memory. The pass adds only copies, so no result changes.
#pragma once

#include "program/program.h"

namespace hone {

// Moves every large activation of a layer whose first backward reader comes at least four layers after its last forward
// reader (in program order) into a state "offload.N" in host memory. The copy to the host overlaps with the next layer;
// the copy back overlaps with the layer that runs before the value is used.
[[nodiscard]] Program offload_activations(const Program& program);

}  // namespace hone
