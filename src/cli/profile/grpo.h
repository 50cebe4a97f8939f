// Profiles whole steps of a GRPO recipe: how long they generate, wait for rewards and learn.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cli/profile/advice.h"
#include "core/json.h"
#include "reward/reward.h"

namespace hone {

// Time of one reward per step, in seconds. Rewards that judge each completion alone run while others are generated.
struct RewardTime {
  std::string name;
  RewardScope scope = RewardScope::kBatch;
  double seconds = 0;
  double completions = 0;  // scored per step
};

// Mean times of GRPO steps, in seconds per step.
struct GrpoTimes {
  StepRate rate;
  double generation = 0;
  double rewards = 0;            // from the end of generation to the last score
  double logprobs = 0;           // log-probabilities of the trainer
  double reference = 0;          // log-probabilities of the reference model
  double loss = 0;               // forward and backward pass
  std::vector<RewardTime> each;  // of `reward_funcs`, slowest first

  // Returns the rest of a step: the update, saving and logging.
  [[nodiscard]] double other() const;
};

// Phases of a step in the order in which they run, and the metrics of training that have their seconds.
struct GrpoPhase {
  const char* name;
  const char* metric;
  double GrpoTimes::* seconds;
};
inline constexpr std::array<GrpoPhase, 5> kGrpoPhases{
    {{"generation", "step_time/generation", &GrpoTimes::generation},
     {"waiting for rewards", "step_time/rewards", &GrpoTimes::rewards},
     {"log-probabilities of the trainer", "step_time/logprobs", &GrpoTimes::logprobs},
     {"log-probabilities of the reference", "step_time/reference", &GrpoTimes::reference},
     {"loss and backward", "step_time/loss", &GrpoTimes::loss}}};

// Advice on rewards, from these times alone.
[[nodiscard]] std::vector<Advice> reward_advice(const GrpoTimes& times);
// Returns the times as a table for a terminal, and as the content of kernel_summary.json.
[[nodiscard]] std::string to_text(const GrpoTimes& times);
[[nodiscard]] Json to_json(const GrpoTimes& times);

// Profiles a recipe, prints the report and writes kernel_summary.json. Returns the exit code.
int profile_grpo(const RecipeSource& source);

}  // namespace hone
