// Why a step of GRPO has no training effect.
#pragma once

#include <cstdint>
#include <string>

#include "rl/grpo_metrics.h"

namespace hone {

// Returns why a step has no training effect, and what to do about it; empty if it has one. rollout: rollout_metrics of
// the last step that made a generation.
[[nodiscard]] std::string idle_cause(const NamedValues& rollout, double grad_norm, std::int64_t max_completion_length);

}  // namespace hone
