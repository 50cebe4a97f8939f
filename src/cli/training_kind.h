// Which training command a recipe is for.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hone {

inline constexpr std::string_view kTrainingKinds[] = {"pretrain", "sft", "grpo"};

// The one of `kinds` whose command knows the most of the recipe's keys: block_size is pretrain's, num_generations
// grpo's. Where several know as many, the one that the file is named after. Throws Error where that leaves several.
[[nodiscard]] std::string_view training_kind_of(const std::string& recipe,
                                                std::span<const std::string_view> kinds = kTrainingKinds);

}  // namespace hone
