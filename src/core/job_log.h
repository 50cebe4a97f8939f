// The log of a process that is one of several of a job, of which one logs for all.
#pragma once

#include <string_view>

namespace hone {

// Suppresses all messages of core/log.h in this process, but not log_error().
void set_silent(bool silent);
void log_error(std::string_view line);  // "LINE" unchanged; neither set_quiet nor set_silent suppresses it

}  // namespace hone
