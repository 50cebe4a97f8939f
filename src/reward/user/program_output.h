// What a user's reward says on standard error, for people.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hone {

// Logs each line as "NAME: LINE", the first hundred of them.
void show_said(std::string_view name, std::string_view text);
// Prints the last lines, where a traceback stands, whether quiet or not.
void show_tail(std::string_view text);

}  // namespace hone
