// Offload: activations that the backward pass reads long after they were made wait for it in another memory. Only
// copies are added, so that no number changes.
#pragma once

#include "program/program.h"

namespace hone {

// Every large activation that outlives its layer's forward pass by another layer becomes a state "offload.N" in the
// host's memory, written while the next layer runs and read back while the layer before its use runs.
[[nodiscard]] Program offload_activations(const Program& program);

}  // namespace hone
