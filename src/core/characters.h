// Character classes and string functions that match Python's str.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hone {

[[nodiscard]] constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
[[nodiscard]] constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
[[nodiscard]] constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// Length in bytes of the white-space character at `at` (Python's str.isspace, Unicode included); 0 if the character is
// not white space.
[[nodiscard]] std::size_t white_space_length(std::string_view text, std::size_t at);
// Returns the position after the white space that begins at `at`, which is `at` if there is none.
[[nodiscard]] std::size_t skip_spaces(std::string_view text, std::size_t at);
// Removes white space at both ends, as Python's str.strip() does.
[[nodiscard]] std::string_view strip(std::string_view text);
// Returns the position after the code point at `at`, which ends before the next byte that is not a continuation byte.
[[nodiscard]] std::size_t next_code_point(std::string_view text, std::size_t at);
// Number of code points, as Python's len() counts them.
[[nodiscard]] std::size_t code_points(std::string_view text);
// Lower case as in Python's str.lower() for ASCII, Latin-1, Latin Extended-A, Greek and Cyrillic; other characters are
// unchanged.
[[nodiscard]] std::string lower_case(std::string_view text);

}  // namespace hone
