// What the program tells its user: notices on standard error, one line each. What messages quote may come from anybody:
// log_info, log_warning and log_once show it as printable() does, lines behind the first one indented.
#pragma once

#include <string_view>

namespace hone {

void log_info(std::string_view message);     // "hone: MESSAGE"
void log_warning(std::string_view message);  // "hone: warning: MESSAGE"
// As log_info, but a message is said once in the life of the process.
void log_once(std::string_view message);
void log_line(std::string_view line);  // "LINE" as it is, whether quiet or not
void set_quiet(bool quiet);            // drops log_info and log_once

// A line that stays below all messages, for a terminal: a progress bar. An empty one takes it away.
void set_status_line(std::string_view line);

}  // namespace hone
