// Ctrl+C and SIGTERM: the first asks loops to finish and save, the second leaves at once with 130.
#pragma once

#include <exception>

namespace hone {

// Thrown by a loop that has saved what there was to save; the command line then exits with 130.
class Interrupted : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "interrupted"; }
};

// Takes over SIGINT and SIGTERM for the rest of the process; for commands whose loops poll. Without it the first one
// ends the process. `notice`, which lives as long as the process, is written to standard error at the first.
void catch_interrupts(const char* notice = "\nhone: stopping; once more leaves at once\n");
// Whether one has arrived since the start or since clear_interrupt(). Loops poll it; any thread may.
[[nodiscard]] bool interrupted();
// Whether one of those was SIGTERM: a loop that goes on after Ctrl+C ends then.
[[nodiscard]] bool termination_requested();
// For a loop that has dealt with it, such as a chat that stops one answer.
void clear_interrupt();
// Throws Interrupted where interrupted().
void throw_if_interrupted();

}  // namespace hone
