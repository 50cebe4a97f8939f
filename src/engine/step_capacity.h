// The capacities of the programs of an engine's step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/device.h"
#include "engine/engine_options.h"

namespace hone {

// The most rows of a program. If it has as many requests as tokens, a GPU computes attention by the kernel for
// sequences of few rows alone; if it has fewer, prompts have a separate kernel (ops/attention/mixed_forward.cuh).
struct StepCapacity {
  std::int64_t tokens = 0;
  std::int64_t requests = 0;  // up to `tokens`
  std::int64_t samples = 0;   // rows from which tokens are drawn or listed, up to `tokens`

  bool operator==(const StepCapacity&) const = default;
};

// Capacities of the engine's programs, in ascending order of their tokens and then of their requests.
[[nodiscard]] std::vector<StepCapacity> engine_capacities(const EngineOptions& options, DeviceKind device);

// Returns the index of the smallest capacity that holds a step of `tokens`. `computes_prompts`: one of its requests has
// several tokens that are not proposals. The step then holds its requests and its samples too, each of which has a
// token.
[[nodiscard]] std::size_t capacity_of_step(std::span<const StepCapacity> capacities, std::int64_t tokens,
                                           bool computes_prompts);

}  // namespace hone
