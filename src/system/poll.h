// Waiting for descriptors, until a deadline.
#pragma once

#include <poll.h>

#include <chrono>
#include <span>

namespace hone {

inline constexpr auto kNoDeadline = std::chrono::steady_clock::time_point::max();

// Waits until an entry is ready, the deadline has passed (an hour, at most) or a signal has come. The number of entries
// that are ready; where it is 0, the revents of all are 0. Throws Error with the system's reason.
int poll_until(std::span<pollfd> entries, std::chrono::steady_clock::time_point deadline);

// Whether the descriptor can be read, or its other side is closed, before the deadline. Signals do not shorten the
// wait.
bool wait_readable(int descriptor, std::chrono::steady_clock::time_point deadline = kNoDeadline);
bool wait_readable(int descriptor, std::chrono::milliseconds limit);

}  // namespace hone
