// The memory of a run, by what it is for.
#pragma once

#include <cstddef>
#include <string>

#include "program/memory_plan.h"

namespace hone {

// Bytes. The sum is what a run's device allocates, to the byte.
struct MemoryBreakdown {
  std::size_t weights = 0;
  std::size_t reference = 0;  // a second model (GRPO with beta)
  std::size_t gradients = 0;
  std::size_t optimizer = 0;
  std::size_t kv_cache = 0;
  std::size_t inputs = 0;            // what the host writes before a launch
  std::size_t arena = 0;             // activations and workspaces of whichever program needs most
  std::size_t leased = 0;            // of the above, counted twice: rollouts lie where training does (Workspace::lease)
  std::size_t offloaded = 0;         // of the host beside the device
  std::size_t paged = 0;             // optimizer states of the host beside the device
  std::size_t peak_activations = 0;  // inside arena
  std::size_t peak_workspace = 0;    // inside arena

  [[nodiscard]] std::size_t total() const {
    return weights + reference + gradients + optimizer + kv_cache + inputs + arena - leased;
  }
  // Counts a program that shares the arena.
  void add_program(const MemoryPlan& plan);
};

// A table, a line a category that is not empty.
[[nodiscard]] std::string to_text(const MemoryBreakdown& memory);

}  // namespace hone
