#include "hub/connection_gate.h"

namespace hone {

bool ConnectionGate::enter(const std::function<bool()>& is_over) {
  std::unique_lock lock(mutex_);
  while (!is_over()) {
    const auto now = ConnectionRateLimiter::Clock::now();
    const auto when = pace_.open(now);
    if (when <= now) return true;
    changed_.wait_until(lock, when);
  }
  return false;
}

void ConnectionGate::answered() {
  {
    const std::scoped_lock lock(mutex_);
    pace_.answered();
  }
  changed_.notify_one();
}

}  // namespace hone
