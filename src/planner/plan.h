// What a run will take, read off the very programs that it will execute.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rl/grpo_run.h"
#include "train/language_run.h"

namespace hone {

struct RunPlan {
  std::string command;
  std::string dtype;
  std::vector<std::pair<std::string, std::int64_t>> parameters;  // by part of the model
  MemoryBreakdown memory;                                        // equals what the run's device allocates
  std::string device;
  std::string fit;  // whether the device has that much, and what would make it fit
  std::int64_t steps = 0;
  std::int64_t tokens_per_micro_batch = 0;  // the capacity
  double flops_per_micro_batch = 0;         // forward and backward, at capacity
  double bytes_per_micro_batch = 0;         // read and written
};

[[nodiscard]] RunPlan plan_run(const LanguageRun& run);
[[nodiscard]] RunPlan plan_run(const GrpoRun& run);
[[nodiscard]] std::string to_text(const RunPlan& plan);

}  // namespace hone
