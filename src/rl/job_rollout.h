// Rollouts of a job of several processes: each tensor group samples and scores completions of its share of the prompts,
// and all processes then have the whole generation. A process that divides its weights with no other is a group.
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
// Returns the share of this rank's tensor group of `count` prompts.
[[nodiscard]] IndexRange share_of_rank(std::size_t count, const Job& job);

// Called by all ranks of a tensor group. The first one calls draw() and the others follow(); then all have what was
// drawn and scored. If draw() fails or is interrupted, all ranks throw, which then save together.
[[nodiscard]] Rollout roll_out_in_group(const Job& job, std::size_t rewards, const RolloutOptions& options,
                                        const std::function<Rollout()>& draw, const std::function<void()>& follow);

// Called by all ranks. sample() makes the rollout of this group's prompts, the same on all of its ranks. Returns the
// rollout of all prompts, in the order of ranks, with advantages over all of its completions; times are the longest of
// any rank. The same as sample() in a job of one group. If a rank fails or is interrupted, all ranks throw.
[[nodiscard]] Rollout roll_out_together(const Job& job, std::size_t rewards, const RolloutOptions& options,
                                        const std::function<Rollout()>& sample);

// Called by all ranks. draw() returns what this rank's completions have, and nothing on a rank that draws none. Returns
// what those of all ranks have, in the order of ranks. If a rank fails or is interrupted, all ranks throw.
[[nodiscard]] std::vector<DrawnTokens> draw_together(const Job& job,
                                                     const std::function<std::vector<DrawnTokens>()>& draw);

// Called by all ranks, of which those of a tensor group have the same numbers. Returns the numbers of all groups, in
// their order.
[[nodiscard]] std::vector<float> gather_numbers(const Job& job, const std::vector<float>& own);

}  // namespace hone
