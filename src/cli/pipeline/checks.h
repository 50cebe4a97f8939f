// Checks the stages of a pipeline before the first one starts, so that a mistake in a late stage does not show after
// hours of training.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/pipeline/stages.h"

namespace hone {

// Returns the problems of all stages that are not done, in order, each as "stage grpo: PROBLEM". Checks keys,
// contradicting options, models, tokenizers, data and its columns, evaluation tasks, batch sizes, and the rewards,
// which are computed for the first row. Outputs of earlier stages are assumed to exist. If both the data and the model
// of a stage exist, the data is encoded into the cache that the stage will read.
//   is_done  [stages]; true for a stage that is not checked
//   file     path of the pipeline's recipe, for the messages
[[nodiscard]] std::vector<std::string> problems_in(std::span<const Stage> stages, const std::vector<bool>& is_done,
                                                   std::string_view file);

}  // namespace hone
