// Python's str methods on UTF-8 text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hone {

[[nodiscard]] bool is_python_space(char32_t c);
[[nodiscard]] std::string_view strip_python_space_left(std::string_view text);
[[nodiscard]] std::string_view strip_python_space_right(std::string_view text);
[[nodiscard]] std::string_view strip_python_space(std::string_view text);
// Strips the characters in `characters`, or white space if it is nullopt.
enum class StripSide { kLeft, kRight, kBoth };
[[nodiscard]] std::string_view python_strip(std::string_view text, const std::optional<std::string>& characters,
                                            StripSide side);
// Python's split(separator, limit); splits at white space if there is no separator. limit < 0: no limit. `from_right`:
// rsplit.
[[nodiscard]] std::vector<std::string> python_split(std::string_view text, const std::optional<std::string>& separator,
                                                    std::int64_t limit, bool from_right);
[[nodiscard]] std::vector<std::string> python_split_lines(std::string_view text, bool keep_ends);
[[nodiscard]] std::string python_replace(std::string_view text, std::string_view from, std::string_view to,
                                         std::int64_t limit);
[[nodiscard]] std::string python_capitalize(std::string_view text);
[[nodiscard]] std::string python_title(std::string_view text);
// datetime.strftime of a naive time in the C locale. `seconds`: since 1970-01-01 00:00 on the local wall clock.
[[nodiscard]] std::string python_strftime(std::string_view format, std::int64_t seconds);
// Byte offsets of all characters and of the end; [characters + 1].
[[nodiscard]] std::vector<std::size_t> character_offsets(std::string_view text);

}  // namespace hone
