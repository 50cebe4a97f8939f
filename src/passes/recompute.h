// Recomputation: activations that the backward pass needs are made again instead of being kept. Nodes are only cloned,
// so no number changes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/device.h"
#include "program/program.h"

namespace hone {

enum class Recompute : std::uint8_t {
  none,       // keep everything
  layers,     // keep what crosses from one layer to the next ("layers.N" scopes), and all outside of them
  automatic,  // the least recomputation with which the arena stays within the budget
};

// `budget`: bytes of the step arena on `device`; read by automatic alone. Where even recomputing every layer is more,
// that is what automatic gives; the caller compares the plan.
[[nodiscard]] Program recompute(const Program& program, Recompute policy, std::size_t budget, DeviceKind device);

}  // namespace hone
