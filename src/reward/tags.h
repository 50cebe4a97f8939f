// Finds the tags <think> and <answer> in completions of R1-style models.
#pragma once

#include <cstddef>
#include <string_view>

namespace hone {

inline constexpr std::string_view kThinkOpening = "<think>\n";

// Returns the text after the last "</think>", or the whole text if there is none.
[[nodiscard]] std::string_view without_thoughts(std::string_view text);
// Like without_thoughts(), and also cuts the result at an unclosed "<think>": a boxed answer in thoughts that never end
// does not count. `opened`: the prompt ends in "<think>", so a text without "</think>" is all thought (empty result).
[[nodiscard]] std::string_view outside_thoughts(std::string_view text, bool opened);
// Counts non-overlapping occurrences from the left, as Python's str.count does.
[[nodiscard]] std::size_t count_occurrences(std::string_view text, std::string_view word);
// Returns true if the completion must be read as if it began with "<think>\n": the chat template has prefilled the tag,
// which is logged once, and the completion does not begin with it.
[[nodiscard]] bool needs_think_opening(std::string_view completion, bool think_prefilled);

// Returns the offset of the answer in a text that begins with "<think>\n", thoughts and "\n</think>\n<answer>\n", or
// npos if the text has another form. The opening tag may be missing if `opened`. The newline after "<think>" and the
// newline before "</think>" must be different characters.
[[nodiscard]] std::size_t answer_start(std::string_view text, bool opened);
// Returns true if "\n</answer>", followed by a newline or the end of the text, is found at or after offset `from`.
[[nodiscard]] bool answer_ends(std::string_view text, std::size_t from);

}  // namespace hone
