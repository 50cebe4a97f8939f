// Handles Ctrl+C and SIGTERM: the first signal requests that loops save and stop, the second exits immediately with
// code 130.
#pragma once

#include <exception>

namespace hone {

// Thrown by a loop after it has saved its work; the command line then exits with code 130.
class Interrupted : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "interrupted"; }
};

// Installs the signal handlers for the rest of the process, for commands whose loops poll interrupted(). Without them
// the first signal ends the process. The handler writes `notice` to standard error at the first signal; the text must
// live as long as the process.
void catch_interrupts(const char* notice = "\nhone: stopping; press Ctrl+C again to exit immediately\n");
// Ignores both signals for the rest of the process, in a process that ends when another one says so.
void ignore_interrupts();
// Returns true if a signal has arrived since the start or since clear_interrupt(). Callable from any thread.
[[nodiscard]] bool interrupted();
// Returns true if SIGTERM has arrived since the start: loops that continue after Ctrl+C must then end.
[[nodiscard]] bool termination_requested();
// Resets interrupted() after the signal was handled, for example by a chat that stops only the current answer.
void clear_interrupt();
// Throws Interrupted if interrupted().
void throw_if_interrupted();

}  // namespace hone
