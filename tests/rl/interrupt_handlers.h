// Handlers of Ctrl+C in a test.
#pragma once

#include <csignal>

#include "core/interrupt.h"

namespace hone::test {

// Installs the handlers of Ctrl+C during its lifetime.
struct InterruptHandlers {
  InterruptHandlers() {
    ::sigaction(SIGINT, nullptr, &interrupt);
    ::sigaction(SIGTERM, nullptr, &terminate);
    catch_interrupts();
  }
  InterruptHandlers(const InterruptHandlers&) = delete;
  InterruptHandlers& operator=(const InterruptHandlers&) = delete;
  ~InterruptHandlers() {
    clear_interrupt();
    ::sigaction(SIGINT, &interrupt, nullptr);
    ::sigaction(SIGTERM, &terminate, nullptr);
  }
  struct sigaction interrupt{};
  struct sigaction terminate{};
};

}  // namespace hone::test
