// Plans the memory of a program before its first run: assigns every activation and workspace an offset in the arena.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "backend/device.h"
#include "program/program.h"

namespace hone {

// Offsets and sizes in bytes.
struct MemoryPlan {
  std::vector<std::size_t> value_offset;      // [values]; kNoOffset unless an activation that owns its storage
  std::vector<std::size_t> workspace_offset;  // [nodes]; kNoOffset for a node without workspace
  std::vector<std::size_t> workspace_bytes;   // [nodes], aligned
  std::size_t arena = 0;                      // size of the arena
  std::size_t inputs = 0;                     // counts and inputs, if they are not shared (program/input_layout.h)
  std::size_t peak_activations = 0;           // most bytes of activations alive at one node
  std::size_t peak_workspace = 0;             // largest workspace of a node
};
inline constexpr std::size_t kNoOffset = static_cast<std::size_t>(-1);

// A storage is alive from the first node that writes it to the last node that uses it or one of its aliases; storages
// of program outputs are alive to the end. Storages and workspaces that are alive at the same node do not overlap. The
// planner places them greedily by decreasing size, each at the lowest offset that is free for its whole life. If this
// build has no kernel for the device, the workspace of the CPU kernel is used.
[[nodiscard]] MemoryPlan plan_memory(const Program& program, DeviceKind device);
// Returns [nodes], the bytes of the activations that are alive at each node. The largest is the plan's
// peak_activations.
[[nodiscard]] std::vector<std::size_t> activation_bytes(const Program& program);

}  // namespace hone
