// Numbers and arithmetic outside LaTeX.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "math_equality/extraction.h"

namespace hone {

// "1,234.5", "-3", ".5", "50%", "$100" after white space, "=" or the text's beginning at `at`.
[[nodiscard]] std::optional<AnswerMatch> match_number(std::string_view text, std::size_t at);
// "3/4", "2 * (3 + 4)": begins with a digit behind the same, and ends before punctuation, white space or the text's
// end, which belongs to the match. At most 512 bytes.
[[nodiscard]] std::optional<AnswerMatch> match_expression(std::string_view text, std::size_t at);
// A number that match_number found, with separators and leading zeros removed and a point: "-1234.5", "0.5", "12".
[[nodiscard]] std::string canonical_number(std::string_view number);

}  // namespace hone
