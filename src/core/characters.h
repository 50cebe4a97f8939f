// Character classes as Python's re and str have them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hone {

[[nodiscard]] constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
[[nodiscard]] constexpr bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
[[nodiscard]] constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// The length in bytes of the white-space character at `at` (Python's str.isspace, Unicode included); 0 where it is
// none.
[[nodiscard]] std::size_t space_at(std::string_view text, std::size_t at);
// Behind the white space that begins at `at`.
[[nodiscard]] std::size_t skip_spaces(std::string_view text, std::size_t at);
// Python's str.strip().
[[nodiscard]] std::string_view strip(std::string_view text);
// Behind the code point at `at`; a stray byte counts as one.
[[nodiscard]] std::size_t next_code_point(std::string_view text, std::size_t at);
// Python's len(): code points.
[[nodiscard]] std::size_t code_points(std::string_view text);
// Python's str.lower() for ASCII, Latin-1, Latin Extended-A, Greek and Cyrillic; other characters stay as they are.
[[nodiscard]] std::string lower_case(std::string_view text);

}  // namespace hone
