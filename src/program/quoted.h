// Text in quotes, as programs are printed: one line of printable characters, whatever the bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hone {

// Puts any bytes between quotes. A quote or a backslash gets a backslash before it, a line break is \n, another control
// character \xNN; all else, UTF-8 too, stays as it is.
[[nodiscard]] std::string quoted(std::string_view text);
// The inverse of quoted(). Throws Error where `text` is not one whole text in quotes.
[[nodiscard]] std::string unquoted(std::string_view text);
// Bytes of the text in quotes that `text` begins with, both quotes included. Throws Error where there is none.
[[nodiscard]] std::size_t quoted_length(std::string_view text);

}  // namespace hone
