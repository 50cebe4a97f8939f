// Finds the letter that a completion chooses in a multiple-choice question.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace hone {

// Returns the chosen letter, A to D; nothing if there is none. The patterns are tried in this order: "final answer is
// X. I hope", "final answer ... is X", "answer: ... X", "answer ... X", the first word of the text, a letter that is a
// word, any capital letter A to D. Within a pattern the match that ends last counts. Takes time proportional to the
// length of the text.
// Source: the patterns for indices of lighteval (extractive_match_utils.py at d3da6b9, English).
[[nodiscard]] std::optional<char> chosen_letter(std::string_view text);

// The patterns in the order in which they are tried, as expressions of core/regex.h. The first group is the letter.
[[nodiscard]] std::span<const std::string> letter_patterns();

}  // namespace hone
