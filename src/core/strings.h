// Text helpers: splitting and joining, base64, escaping for terminals and HTML, and formatting of sizes and durations.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

// Splits at each separator; n separators give n + 1 parts, of which some may be empty.
[[nodiscard]] std::vector<std::string> split(std::string_view text, char separator);
// Decodes standard base64 with padding; returns nullopt if the text is not valid.
[[nodiscard]] std::optional<std::string> decode_base64(std::string_view text);
[[nodiscard]] std::string encode_base64(std::string_view bytes);
[[nodiscard]] std::string_view trim(std::string_view text);  // removes ASCII white space at both ends
[[nodiscard]] std::string join(std::span<const std::string> parts, std::string_view separator);
// Makes untrusted text safe to show on a terminal. Control characters except line breaks and tabs, characters that
// change the writing direction, and bytes that are not UTF-8 are replaced by escapes ("\x1b", "\u202e").
[[nodiscard]] std::string printable(std::string_view text);
// Does the same for a single line: line breaks, carriage returns and tabs become blanks.
[[nodiscard]] std::string printable_line(std::string_view text);
// Escapes text for HTML: &, <, > and " become entities.
[[nodiscard]] std::string html_text(std::string_view text);
// Returns the candidate with the smallest edit distance from `word`, or "" if none is close enough to be a likely typo:
// at most max(2, a third of the word's bytes) edits.
[[nodiscard]] std::string nearest_name(std::string_view word, std::span<const std::string> candidates);
// Formats a size with binary units: "3.20 GiB", "512 B".
[[nodiscard]] std::string format_bytes(std::uint64_t bytes);
// Parses a size in bytes: "5GB" is 5 x 10^9, "5GiB" is 5 x 2^30, in either case of letters; a plain number is a count
// of bytes. Returns nullopt if the text is not a size or not between 1 and 10^15 bytes.
[[nodiscard]] std::optional<std::uint64_t> parse_bytes(std::string_view text);
// Formats a number with thousands separators: "1,234,567".
[[nodiscard]] std::string format_count(std::int64_t count);
// Formats a duration: "1h 02m", "3m 04s", "12s".
[[nodiscard]] std::string format_duration(double seconds);

}  // namespace hone
