// Tags that R1-style completions carry.
#pragma once

#include <cstddef>
#include <string_view>

namespace hone {

inline constexpr std::string_view kThinkOpening = "<think>\n";

// What follows the last "</think>"; all of the text where there is none.
[[nodiscard]] std::string_view without_thoughts(std::string_view text);
// The same, and nothing from a "<think>" on that no "</think>" follows: a box in thoughts that never end is no answer.
// `opened`: the prompt ended in that tag, so that all of a text without "</think>" is thought.
[[nodiscard]] std::string_view outside_thoughts(std::string_view text, bool opened);
// Non-overlapping occurrences, counted from the left as Python's str.count does.
[[nodiscard]] std::size_t count_occurrences(std::string_view text, std::string_view word);
// True where the completion must be read as if "<think>\n" stood before it: the template prefilled the tag (said once)
// and the caller did not prepend it.
[[nodiscard]] bool needs_think_opening(std::string_view completion, bool think_prefilled);

// Where the answer's text begins in "<think>\n" ... "\n</think>\n<answer>\n" (without the opening where it is taken as
// `opened`); npos where the text does not begin so. The two newlines are not the same one.
[[nodiscard]] std::size_t answer_start(std::string_view text, bool opened);
// Whether "\n</answer>" stands at `from` or later, before a newline or at the end.
[[nodiscard]] bool answer_ends(std::string_view text, std::size_t from);

}  // namespace hone
