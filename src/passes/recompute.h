// Recomputation: activations that the backward pass needs are made again instead of being kept. Nodes are only cloned,
// so no number changes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/device.h"
#include "program/program.h"

namespace hone {

enum class Recompute : std::uint8_t {
  none,  // keep everything
  // Keep what crosses from one layer to the next ("layers.N" scopes) and all outside of them; of the results of pairs
  // of tokens (attention), whose cost grows with the square of the length, as many as the budget has room for.
  layers,
  automatic,  // the least recomputation with which the arena stays within the budget: the cheapest seconds a byte first
};

// `budget`: bytes of the step arena on `device`. Where even recomputing all that can be is more, that is what comes
// out; the caller compares the plan. Seconds are by built_in_model(device): no measurement changes the program.
[[nodiscard]] Program recompute(const Program& program, Recompute policy, std::size_t budget, DeviceKind device);

}  // namespace hone
