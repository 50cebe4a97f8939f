// A training run on one batch of a small model with given evaluation results.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "train/options.h"

namespace hone::test {

struct ScriptedRun {
  TrainingOptions options;
  std::vector<double> evaluations = {};  // results after step 1, 2, ...
  std::int64_t steps = 1;
  std::string metric = "eval_loss";  // name of the evaluation result
  std::int64_t steps_per_epoch = 1'000'000;
  std::function<void(std::int64_t step)> in_step = {};        // called in each step, counted from 0
  std::function<void(std::int64_t step)> in_evaluation = {};  // called in each evaluation, with the steps done
  std::string options_json = "{}";                            // values in effect
};
// Trains with output_dir `folder`. Throws what training throws.
void run_scripted(const std::filesystem::path& folder, ScriptedRun run);

}  // namespace hone::test
