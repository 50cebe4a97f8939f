// Small text helpers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

[[nodiscard]] std::vector<std::string> split(std::string_view text, char separator);
// The bytes of base64 with its padding; nullopt where the text is none.
[[nodiscard]] std::optional<std::string> decode_base64(std::string_view text);
[[nodiscard]] std::string_view trim(std::string_view text);  // ASCII white space
[[nodiscard]] std::string join(std::span<const std::string> parts, std::string_view separator);
// Text of others as it may be shown on a terminal: control characters other than line breaks and tabs, characters that
// change the direction of writing, and bytes that are no UTF-8 are spelled out ("\x1b", "\u202e").
[[nodiscard]] std::string printable(std::string_view text);
// The same on one line: line breaks, carriage returns and tabs are blanks.
[[nodiscard]] std::string printable_line(std::string_view text);
// The candidate with the fewest edits from `word`, or "" where none is near enough to be meant.
[[nodiscard]] std::string nearest_name(std::string_view word, std::span<const std::string> candidates);
// "3.2 GiB"; "512 B".
[[nodiscard]] std::string format_bytes(std::uint64_t bytes);
// "1,234,567".
[[nodiscard]] std::string format_count(std::int64_t count);
// "1h 02m", "3m 04s", "12s".
[[nodiscard]] std::string format_duration(double seconds);

}  // namespace hone
