#include "core/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string_view>

namespace hone {
namespace {

constexpr int kExitInterrupted = 130;
std::atomic<bool> arrived{false};
std::atomic<bool> terminates{false};
std::atomic<const char*> first_notice{""};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<const char*>::is_always_lock_free,
              "a signal handler uses them");

void say(std::string_view text) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

extern "C" void on_signal(int signal) {
  const int error = errno;
  if (signal == SIGTERM) terminates = true;
  if (arrived.exchange(true)) {
    say("\n");
    ::_exit(kExitInterrupted);
  }
  say(first_notice.load());
  errno = error;
}

}  // namespace

void catch_interrupts(const char* notice) {
  first_notice = notice;
  struct sigaction action{};
  action.sa_handler = on_signal;
  ::sigemptyset(&action.sa_mask);
  // No SA_RESTART: a read that waits for input must return with EINTR so that its loop can poll interrupted().
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

void ignore_interrupts() {
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction action{};
    action.sa_handler = SIG_IGN;
    ::sigaction(signal, &action, nullptr);
  }
}

bool interrupted() { return arrived.load(std::memory_order_relaxed); }
bool termination_requested() { return terminates; }
void clear_interrupt() { arrived.store(false, std::memory_order_relaxed); }
void throw_if_interrupted() {
  if (interrupted()) throw Interrupted();
}

}  // namespace hone
