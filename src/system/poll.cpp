#include "system/poll.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "core/error.h"

namespace hone {
namespace {

using PollClock = std::chrono::steady_clock;

int milliseconds_until(PollClock::time_point deadline) {
  constexpr std::int64_t kMost = 3'600'000;
  if (deadline == kNoDeadline) return static_cast<int>(kMost);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - PollClock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, kMost));
}

}  // namespace

int poll_until(std::span<pollfd> entries, PollClock::time_point deadline) {
  const int count = ::poll(entries.data(), entries.size(), milliseconds_until(deadline));
  if (count >= 0) return count;
  if (errno != EINTR) throw Error("waiting for descriptors", text_of("poll: ", std::strerror(errno)));
  for (pollfd& entry : entries) entry.revents = 0;
  return 0;
}

bool wait_readable(int descriptor, PollClock::time_point deadline) {
  pollfd entry{descriptor, POLLIN, 0};
  do {
    if (poll_until({&entry, 1}, deadline) > 0) return true;
  } while (PollClock::now() < deadline);
  return false;
}

bool wait_readable(int descriptor, std::chrono::milliseconds limit) {
  return wait_readable(descriptor, PollClock::now() + limit);
}

}  // namespace hone
