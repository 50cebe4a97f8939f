// The letter that a completion chooses.
#pragma once

#include <optional>
#include <string_view>

namespace hone {

// Of A to D, as lighteval's patterns for indices find it (extractive_match_utils.py at d3da6b9, English): by priority
// "final answer is X. I hope", "final answer ... is X", "answer: ... X", "answer ... X", the text's first word, a
// letter that is a word, any capital A to D; within a priority the match that ends last, then that begins first.
[[nodiscard]] std::optional<char> chosen_letter(std::string_view text);

}  // namespace hone
