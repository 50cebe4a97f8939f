// Messages in which the ranks of a job send each other their rollouts: bytes in the order of the machine, without a
// version, since all ranks run one program.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rl/rollout.h"

namespace hone {

// Returns the samples, judgements, drawn tokens and times of a rollout; not its scores and advantages.
[[nodiscard]] std::string to_message(const Rollout& rollout);
// Adds the rollout of a message to those of the ranks before it; times are the longest of any. Throws Defect if the
// message ends early or late.
void append_message(std::string_view message, Rollout& rollout);

[[nodiscard]] std::string to_message(std::span<const DrawnTokens> drawn);
void append_message(std::string_view message, std::vector<DrawnTokens>& drawn);

}  // namespace hone
