// Quotes strings in the text of programs: any bytes become one line without control characters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hone {

// Encloses text in double quotes. Quotes and backslashes are preceded by a backslash, line breaks become \n, other
// control characters \xNN; all other bytes, including UTF-8, are unchanged.
[[nodiscard]] std::string in_quotes(std::string_view text);
// Inverse of in_quotes(). Throws Error if `text` is not exactly one quoted string.
[[nodiscard]] std::string unquoted(std::string_view text);
// Length in bytes, with both quotes, of the quoted string at the beginning of `text`. Throws Error if there is none.
[[nodiscard]] std::size_t quoted_length(std::string_view text);

}  // namespace hone
