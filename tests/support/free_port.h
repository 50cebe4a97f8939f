// Ports for servers that a test starts later, or in other processes.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "core/error.h"
#include "system/meeting.h"

namespace hone::test {

// Returns a port of this machine on which nothing waits. It is below those that systems choose for connections, so that
// none of these takes it before the test does, and apart from those of tests that run at the same time: each process
// has 64 of 22,000 numbers, by its id.
inline std::uint16_t free_port() {
  constexpr std::uint32_t kFirst = 10000;
  constexpr std::uint32_t kNumbers = 22000;
  static std::atomic<std::uint32_t> next{static_cast<std::uint32_t>(::getpid()) * 64};
  for (;;) {
    const auto port = static_cast<std::uint16_t>(kFirst + next++ % kNumbers);
    try {
      return listen_on(port, false).port;
    } catch (const Error&) {
      continue;  // in use
    }
  }
}

}  // namespace hone::test
