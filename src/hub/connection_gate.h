// Spaces out the opening of connections, so that a burst of requests does not overflow a server's queue of connections.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

namespace hone {

// A server that listens with a backlog of 5 (Python's http.server) drops the connections of a burst beyond it, and the
// system tries each again only after 1, 3 and 7 seconds. So a few connections are opened at once, and the next when one
// of those has been answered, or after a pause: servers whose answers take long get one connection after the other, all
// the same.
class ConnectionPace {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr int kMostUnanswered = 4;
  static constexpr std::chrono::milliseconds kPause{10};

  // Returns `now` where a connection may be opened, which counts as unanswered from then on; else when to ask again.
  [[nodiscard]] Clock::time_point open(Clock::time_point now) {
    if (unanswered_ >= kMostUnanswered && now < last_ + kPause) return last_ + kPause;
    ++unanswered_;
    last_ = now;
    return now;
  }
  // A connection that was opened has brought the beginning of its first answer, or has failed.
  void answered() { --unanswered_; }

 private:
  int unanswered_ = 0;
  Clock::time_point last_{};
};

// The same for threads. Thread-safe.
class ConnectionGate {
 public:
  // Waits until a connection may be opened; false where `is_over` says so first.
  [[nodiscard]] bool enter(const std::function<bool()>& is_over);
  void answered();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  ConnectionPace pace_;
};

}  // namespace hone
