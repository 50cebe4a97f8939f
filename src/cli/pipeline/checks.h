// Checks of a pipeline before its first stage starts.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/pipeline/stages.h"

namespace hone {

// "stage grpo: PROBLEM", one for each problem of each stage that `is_done` does not name, in order: keys, options that
// contradict each other, models, tokenizers, data and its columns, tasks, rewards (each is tried on the first row), how
// batches divide. What a stage before it makes is taken to be there. Data that is there, of stages whose model is there
// too, is encoded as the stage will do it, into the cache from which the stage takes it. `file`: of the recipe.
[[nodiscard]] std::vector<std::string> problems_in(std::span<const Stage> stages, const std::vector<bool>& is_done,
                                                   std::string_view file);

}  // namespace hone
