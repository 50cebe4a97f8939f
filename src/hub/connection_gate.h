// Limits the rate at which connections are opened, so that a burst of requests does not overflow a server's listen
// queue.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace hone {

// Decides when the next connection may be opened. A server with a listen backlog of 5 (Python's http.server) drops the
// connections of a larger burst, and the kernel retries each only after 1, 3 and 7 seconds. Therefore at most
// kMostUnanswered connections may be unanswered; the next one is opened when one of these is answered, or after kPause,
// so that servers with slow answers still get one connection after another.
class ConnectionRateLimiter {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kMostUnanswered = 4;
  static constexpr std::chrono::milliseconds kPause{10};

  // Returns `now` if a connection may be opened; it then counts as unanswered. Otherwise returns when to call again.
  [[nodiscard]] Clock::time_point open(Clock::time_point now) {
    if (unanswered_ >= kMostUnanswered && now < last_ + kPause) return last_ + kPause;
    ++unanswered_;
    last_ = now;
    return now;
  }
  // Reports that an opened connection received the start of its first answer, or failed.
  void answered() { --unanswered_; }

 private:
  int unanswered_ = 0;
  Clock::time_point last_{};
};

// A thread-safe ConnectionRateLimiter that blocks.
class ConnectionGate {
 public:
  // Waits until a connection may be opened and returns true, or returns false as soon as `is_over` returns true.
  [[nodiscard]] bool enter(const std::function<bool()>& is_over);
  void answered();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  ConnectionRateLimiter pace_;
};

}  // namespace hone
