// Finds numbers and arithmetic expressions in text outside of LaTeX.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "math_equality/extraction.h"

namespace hone {

// Matches a number such as "1,234.5", "-3", ".5", "50%" or "$100" after the white space, the "=" or the beginning of
// the text at `at`.
[[nodiscard]] std::optional<AnswerMatch> match_number(std::string_view text, std::size_t at);
// Matches an expression such as "3/4" or "2 * (3 + 4)" after the same prefix. It begins with a digit, apart from signs
// and a parenthesis, and ends before punctuation, white space or the end of the text; the punctuation or space is part
// of the match. At most 512 bytes.
[[nodiscard]] std::optional<AnswerMatch> match_expression(std::string_view text, std::size_t at);
// Rewrites a number that match_number() found without separators and leading zeros and with a decimal point: "-1234.5",
// "0.5", "12".
[[nodiscard]] std::string canonical_number(std::string_view number);

}  // namespace hone
