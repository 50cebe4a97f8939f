// Samples of a generation in a checkpoint's state: a resumed run trains on what was sampled before it stopped.
#pragma once

#include <span>
#include <vector>

#include "core/json.h"
#include "rl/policy_batch.h"

namespace hone {

// Returns an array with one object per sample, whose fields are those of PolicySample.
[[nodiscard]] Json to_json(std::span<const PolicySample> samples);
// Returns the samples of such an array. Throws Json::exception for any other value.
[[nodiscard]] std::vector<PolicySample> samples_from(const Json& json);

}  // namespace hone
