// Where every value of a program lies in the step arena, known before the first run.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "backend/device.h"
#include "program/program.h"

namespace hone {

// Bytes by category; `arena` is what the arena needs, `activations` and `workspace` the most alive at one node of each.
struct MemoryPlan {
  std::vector<std::size_t> value_offset;      // by value id: of activations that own storage, else kNoOffset
  std::vector<std::size_t> workspace_offset;  // by node
  std::vector<std::size_t> workspace_bytes;   // by node, aligned
  std::size_t arena = 0;
  std::size_t inputs = 0;  // the host-written values, each aligned, and the counts behind them
  std::size_t peak_activations = 0;
  std::size_t peak_workspace = 0;
};
inline constexpr std::size_t kNoOffset = static_cast<std::size_t>(-1);

// Lifetimes run from the first node that writes a storage to the last that uses it (outputs: to the end). Offsets are
// placed by decreasing size, each at the lowest gap that is free for its whole life. A build without kernels for the
// device plans with the workspaces of the host's.
[[nodiscard]] MemoryPlan plan_memory(const Program& program, DeviceKind device);

}  // namespace hone
