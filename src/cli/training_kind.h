// Finds the training command that a recipe is written for, so that `hone plan RECIPE.yaml` need not name it.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hone {

inline constexpr std::string_view kTrainingKinds[] = {"pretrain", "sft", "grpo"};

// Returns the element of `kinds` whose command knows most of the recipe's keys; for example, block_size belongs to
// pretrain and num_generations to grpo. A tie is decided by the file name, as in sft.yaml. Throws Error if a tie
// remains, if the file is not valid YAML, or if it is the recipe of a pipeline.
[[nodiscard]] std::string_view training_kind_of(const std::string& recipe,
                                                std::span<const std::string_view> kinds = kTrainingKinds);

}  // namespace hone
