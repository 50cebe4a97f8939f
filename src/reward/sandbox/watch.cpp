#include "reward/sandbox/watch.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <optional>

#include "core/error.h"
#include "core/strings.h"

namespace hone {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kSetupTime{20};  // for the sandbox, on a machine that is very busy

int open_process(pid_t id) { return static_cast<int>(syscall(SYS_pidfd_open, id, 0)); }

std::optional<int> number_after(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + key.size());
  while (text.starts_with(' ')) text.remove_prefix(1);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  // The last digit is known as such only by what follows.
  return error == std::errc{} && end != text.data() + text.size() ? std::optional(number) : std::nullopt;
}

class Watch {
 public:
  Watch(WatchedChild child, const SandboxLimits& limits)
      : child_(std::move(child)), limits_(limits), process_(std::move(child_.process)), launched_(process_.open()) {
    if (!launched_) process_ = Descriptor(open_process(child_.id));
    if (!process_.open()) {
      const int error = errno;
      kill(child_.id, SIGKILL);
      (void)waitpid(child_.id, nullptr, 0);
      throw Error("running a program", text_of("pidfd_open: ", std::strerror(error)));
    }
    wrapped_ = child_.status.open();
    deadline_ = Clock::now() + (wrapped_ ? std::chrono::milliseconds(kSetupTime) : limits_.wall_time);
  }

  SandboxResult run() {
    while (!wait_once()) {
    }
    int status = SIGKILL;
    if (!launched_) {
      // The zombie keeps its number, which is the session's, from being used anew.
      kill(-child_.id, SIGKILL);
      while (waitpid(child_.id, &status, 0) < 0 && errno == EINTR) {
      }
    }
    drain(child_.output, result_.output);
    drain(child_.error, result_.error);
    if (wrapped_) drain_status();
    settle(launched_ ? number_after(said_, "ended ").value_or(status) : status);
    return std::move(result_);
  }

 private:
  // True where the child has ended.
  bool wait_once() {
    std::array<pollfd, 4> ready{{{process_.number(), POLLIN, 0},
                                 {child_.output.number(), POLLIN, 0},
                                 {child_.error.number(), POLLIN, 0},
                                 {child_.status.number(), POLLIN, 0}}};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
    const int count = poll(ready.data(), ready.size(), ended_ ? -1 : static_cast<int>(std::max<std::int64_t>(0, left)));
    if (count < 0 && errno != EINTR) throw Error("running a program", text_of("poll: ", std::strerror(errno)));
    if (count > 0) {
      if (ready[1].revents != 0) read_some(child_.output, result_.output);
      if (ready[2].revents != 0) read_some(child_.error, result_.error);
      if (ready[3].revents != 0) read_status();
      if (ready[0].revents != 0) return true;
    }
    if (!ended_ && Clock::now() >= deadline_) {
      result_.timed_out = true;
      end();
    }
    return false;
  }

  // False where there is nothing more for now.
  bool read_some(Descriptor& from, std::string& into) {
    if (!from.open()) return false;
    std::array<char, 1 << 16> bytes;
    const ssize_t count = read(from.number(), bytes.data(), bytes.size());
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (count <= 0) {
      from = Descriptor();
      return false;
    }
    const std::size_t room = limits_.output_bytes - std::min<std::size_t>(limits_.output_bytes, into.size());
    into.append(bytes.data(), std::min(room, static_cast<std::size_t>(count)));
    if (static_cast<std::size_t>(count) <= room) return true;
    result_.output_exceeded = true;
    if (!ended_) end();
    return false;
  }

  // What is in the pipe already; a process that has fled the session might keep it open.
  void drain(Descriptor& from, std::string& into) {
    while (read_some(from, into)) {
    }
  }

  bool read_status() {
    if (!child_.status.open()) return false;
    std::array<char, 512> bytes;
    const ssize_t count = read(child_.status.number(), bytes.data(), bytes.size());
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (count <= 0) {
      child_.status = Descriptor();
      return false;
    }
    said_.append(bytes.data(), static_cast<std::size_t>(count));
    if (began_) return true;
    if (launched_) {
      began_ = said_.starts_with("began\n");
    } else if (const std::optional<int> id = number_after(said_, "\"child-pid\":")) {
      inner_ = Descriptor(open_process(*id));
      began_ = true;
    }
    if (began_ && !ended_) deadline_ = Clock::now() + limits_.wall_time;
    return true;
  }

  void drain_status() {
    while (read_status()) {
    }
  }

  // The first process of the sandbox takes all others with it, and bubblewrap, which waits for it, ends last.
  void end() {
    ended_ = true;
    if (!wrapped_) {
      kill(-child_.id, SIGKILL);
    } else if (launched_ || inner_.open()) {
      const int first = launched_ ? process_.number() : inner_.number();
      (void)syscall(SYS_pidfd_send_signal, first, SIGKILL, nullptr, 0);
    } else {
      kill(child_.id, SIGKILL);
    }
  }

  void settle(int status) {
    if (wrapped_ && !ended_ && !number_after(said_, launched_ ? "ended " : "\"exit-code\":")) {
      std::string_view reason = result_.error;
      if (launched_) {
        constexpr std::string_view kFailed = "failed ";
        const std::size_t at = said_.find(kFailed);
        reason = at == std::string::npos ? "" : std::string_view(said_).substr(at + kFailed.size());
      }
      reason = trim(reason);
      result_.failure = reason.empty() ? "the sandbox ended early" : std::string(reason);
    }
    result_.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (result_.exit_status > 128 && result_.exit_status <= 128 + SIGRTMAX) result_.signal = result_.exit_status - 128;
  }

  WatchedChild child_;
  SandboxLimits limits_;
  Descriptor process_;  // the child
  Descriptor inner_;    // the first process in the sandbox
  SandboxResult result_;
  std::string said_;
  Clock::time_point deadline_;
  bool wrapped_ = false;
  bool launched_ = false;
  bool began_ = false;  // the program, and with it its time
  bool ended_ = false;  // killed
};

}  // namespace

SandboxResult watch(WatchedChild child, const SandboxLimits& limits) { return Watch(std::move(child), limits).run(); }

}  // namespace hone
