// Waits for file descriptors with a deadline.
#pragma once

#include <poll.h>

#include <chrono>
#include <span>

namespace hone {

inline constexpr auto kNoDeadline = std::chrono::steady_clock::time_point::max();

// Waits until an entry is ready, the deadline or an hour has passed, or a signal arrives. Returns the number of ready
// entries; if it is 0, the revents of all entries are 0. Throws Error with the system's reason.
int poll_until(std::span<pollfd> entries, std::chrono::steady_clock::time_point deadline);

// Returns true once the descriptor is readable or its other end is closed; false after the deadline. Signals do not end
// the wait early.
bool wait_readable(int descriptor, std::chrono::steady_clock::time_point deadline = kNoDeadline);
bool wait_readable(int descriptor, std::chrono::milliseconds limit);

}  // namespace hone
