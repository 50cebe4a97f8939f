// A training run on one batch of a small model, whose evaluations are told.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "train/options.h"

namespace hone::test {

struct ToldRun {
  TrainingOptions options;
  std::vector<double> evaluations = {};  // after step 1, 2, ...
  std::int64_t steps = 1;
  std::string metric = "eval_loss";  // what evaluations tell
  std::int64_t steps_per_epoch = 1'000'000;
  std::function<void(std::int64_t step)> in_step = {};        // called within each, from 0
  std::function<void(std::int64_t step)> in_evaluation = {};  // and within each evaluation, behind so many steps
  std::string options_json = "{}";                            // as in effect
};
// Runs it, with output_dir `folder`. Throws what training throws.
void run_told(const std::filesystem::path& folder, ToldRun run);

}  // namespace hone::test
