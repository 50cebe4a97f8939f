// How a program's output is compared with the expected one.
#pragma once

#include <string>
#include <string_view>

namespace hone {

// Whether the texts, stripped, have the same number of lines and the lines, stripped, are the same.
[[nodiscard]] bool same_output(std::string_view printed, std::string_view expected);
// Whether they have the same words, "yes" and "no" in whatever case: how open-r1's judge of Codeforces compares.
[[nodiscard]] bool same_words(std::string_view printed, std::string_view expected);
// Whether `diff -b` finds no difference, once the expected text ends in exactly one line break: how open-r1's judge of
// IOI compares. Runs of blanks are one blank, and none at the end of a line.
[[nodiscard]] bool same_but_for_blanks(std::string_view printed, std::string_view expected);

// Without the carriage return at the end of a line.
[[nodiscard]] std::string unix_lines(std::string_view text);
// Without empty lines.
[[nodiscard]] std::string filled_lines(std::string_view text);

}  // namespace hone
