// Shows the standard error of a user's reward.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace hone {

// Logs the first 100 lines as "NAME: LINE".
void show_said(std::string_view name, std::string_view text);
// Prints the last 20 lines, which contain the traceback of a Python reward, even if hone is quiet.
void show_tail(std::string_view text);

}  // namespace hone
