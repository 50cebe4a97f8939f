// Messages to the user on standard error. Messages may quote untrusted text, so log_info, log_warning and log_once
// escape it as printable() does and indent every line after the first: quoted text cannot forge a message.
#pragma once

#include <string_view>

namespace hone {

void log_info(std::string_view message);     // "hone: MESSAGE"
void log_warning(std::string_view message);  // "hone: warning: MESSAGE"
// Like log_info, but prints each distinct message only once per process.
void log_once(std::string_view message);
void log_line(std::string_view line);  // "LINE" unchanged; set_quiet does not suppress it
bool set_quiet(bool quiet);            // true suppresses log_info and log_once; returns what it was

// Suppresses log_info and log_once while it exists.
class QuietScope {
 public:
  QuietScope() : was_(set_quiet(true)) {}
  ~QuietScope() { set_quiet(was_); }
  QuietScope(const QuietScope&) = delete;
  QuietScope& operator=(const QuietScope&) = delete;

 private:
  bool was_;
};

// Sets the status line of a terminal, such as a progress bar, which stays below all messages. An empty line removes it.
void set_status_line(std::string_view line);

}  // namespace hone
