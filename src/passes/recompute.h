// The recomputation pass (activation checkpointing): the backward pass recomputes activations that it needs instead of
// keeping them in memory. The pass only clones nodes, so no result changes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/device.h"
#include "program/program.h"

namespace hone {

enum class Recompute : std::uint8_t {
  kNone,  // keep everything
  // Keep values that cross from one layer ("layers.N" scope) to the next and everything outside of layers. Results of
  // attention, whose cost grows with the square of the sequence length, are also kept as far as the budget allows.
  kLayers,
  kAutomatic,  // as little as keeps the arena within the budget, values that cost the fewest seconds per byte first
};

// Returns the program with recomputation by `policy`. `budget` is the size in bytes that the step arena on `device` may
// have. If even full recomputation exceeds the budget, the result recomputes everything it can, and the caller must
// compare the memory plan with the budget. Costs in seconds come from built_in_model(device), so measured rates never
// change the program.
[[nodiscard]] Program recompute(const Program& program, Recompute policy, std::size_t budget, DeviceKind device);

}  // namespace hone
