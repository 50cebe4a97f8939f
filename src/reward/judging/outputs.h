// Compares the output of a program with the expected output.
#pragma once

#include <string>
#include <string_view>

namespace hone {

// Returns true if the stripped texts have the same number of lines and all stripped lines are equal.
[[nodiscard]] bool same_output(std::string_view printed, std::string_view expected);
// Returns true if the texts contain the same words, ignoring the case of "yes" and "no". This is the comparison of
// open-r1's Codeforces judge.
[[nodiscard]] bool same_words(std::string_view printed, std::string_view expected);
// Returns true if `diff -b` finds no difference after the expected text has been ended with exactly one line break:
// runs of blanks count as one blank, and blanks at the end of a line are ignored. This is the comparison of open-r1's
// IOI judge.
[[nodiscard]] bool same_but_for_blanks(std::string_view printed, std::string_view expected);

// Removes the carriage return at the end of each line.
[[nodiscard]] std::string unix_lines(std::string_view text);
// Removes empty lines.
[[nodiscard]] std::string filled_lines(std::string_view text);

}  // namespace hone
