// Offload: activations that the backward pass reads long after they were made wait for it in another memory. Only
// copies are added, so that no number changes.
#pragma once

#include <vector>

#include "program/program.h"
#include "program/tensor_store.h"

namespace hone {

// Every large activation that outlives its layer's forward pass by another layer becomes a state "offload.N", written
// while the next layer runs and read back while the layer before its use runs.
[[nodiscard]] Program offload_activations(const Program& program);

// Those states: a store of them is bound as the program's states.
[[nodiscard]] std::vector<NamedType> offloaded_types(const Program& program);

}  // namespace hone
