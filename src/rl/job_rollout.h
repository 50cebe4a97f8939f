// Rollouts of a job of several processes: each samples and scores completions of its share of the prompts, and all of
// them then have the whole generation.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "rl/rollout.h"
#include "train/job.h"

namespace hone {

// Consecutive prompts or completions.
struct IndexRange {
  std::size_t first = 0;
  std::size_t count = 0;
};
// Returns the share of a rank of `count` prompts.
[[nodiscard]] IndexRange share_of_rank(std::size_t count, const Job& job);

// Called by all ranks. sample() makes the rollout of this rank's prompts. Returns the rollout of all prompts, in the
// order of ranks, with advantages over all of its completions; times are the longest of any rank. The same as sample()
// in a job of one process. If a rank is interrupted, all ranks throw Interrupted.
[[nodiscard]] Rollout roll_out_together(const Job& job, std::size_t rewards, const RolloutOptions& options,
                                        const std::function<Rollout()>& sample);

// Called by all ranks. draw() returns what this rank's completions have. Returns what those of all ranks have, in the
// order of ranks. If a rank is interrupted, all ranks throw Interrupted.
[[nodiscard]] std::vector<DrawnTokens> draw_together(const Job& job,
                                                     const std::function<std::vector<DrawnTokens>()>& draw);

}  // namespace hone
