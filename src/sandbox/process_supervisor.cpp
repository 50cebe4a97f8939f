#include "sandbox/process_supervisor.h"

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
#include "system/child.h"
#include "system/poll.h"
#include "system/processor_time.h"

namespace hone {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kSetupTime{60};        // limit on building the sandbox, generous for a very busy machine
constexpr std::chrono::milliseconds kLeastSlice{20};  // minimum time between two checks of an expired limit
constexpr int kIdleLooks = 5;  // consecutive checks without a runnable process after which a program counts as idle
// Factor by which a runnable program may exceed its time on the clock. Other programs cannot delay it by as much: at
// most as many run concurrently as there are processors, each with at most SandboxLimits::processes threads, and the
// kernel shares processors evenly.
constexpr int kMostTimes = 12;
constexpr std::size_t kMostSaid = 1 << 16;       // bytes of the status pipe that are kept
constexpr std::size_t kMostErrorKept = 1 << 16;  // bytes of standard error that are kept for messages
// Lines that the first process of a sandbox writes to the status pipe.
constexpr std::string_view kBegan = "began\n";
constexpr std::string_view kEndedKey = "ended ";
constexpr std::string_view kFailed = "failed ";
constexpr std::string_view kExitCode = "\"exit-code\":";  // bubblewrap

// Returns the number that follows the first occurrence of `key`; nothing if it is not complete yet.
std::optional<int> number_after(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + key.size());
  while (text.starts_with(' ')) text.remove_prefix(1);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  // A number at the end of the text may have further digits that have not been read yet.
  return error == std::errc{} && end != text.data() + text.size() ? std::optional(number) : std::nullopt;
}

// Time limit of a program. It ends by the clock, but is extended for a program that is runnable and has used less CPU
// time than the limit: the load of the machine must not change the score of a program.
class Allowance {
 public:
  Allowance() = default;  // no limit
  Allowance(std::chrono::milliseconds time, std::chrono::milliseconds used_before)
      : time_(time), used_before_(used_before), last_(Clock::now() + kMostTimes * time), next_(Clock::now() + time) {}

  // Time at which is_over() must be called.
  [[nodiscard]] Clock::time_point next() const { return next_; }
  // Returns true if the limit has been reached; otherwise moves next() to a later time.
  [[nodiscard]] bool is_over(const ProcessorTime& processor) {
    const std::chrono::milliseconds left = time_ - (processor.used - used_before_);
    const Clock::time_point now = Clock::now();
    if (left.count() <= 0 || now >= last_) return true;
    // A program that is starting, ending or waiting for the disk is not runnable for a moment, which may last long on a
    // busy machine. Only several consecutive checks show that it is idle.
    idle_looks_ = processor.is_wanted ? 0 : idle_looks_ + 1;
    if (idle_looks_ == kIdleLooks) return true;
    next_ = std::min(last_, now + (idle_looks_ > 0 ? kLeastSlice : std::max(left, kLeastSlice)));
    return false;
  }

 private:
  std::chrono::milliseconds time_{0};
  std::chrono::milliseconds used_before_{0};
  Clock::time_point last_ = Clock::time_point::max();
  Clock::time_point next_ = Clock::time_point::max();
  int idle_looks_ = 0;  // consecutive checks without a runnable process
};

class Watch {
 public:
  Watch(WatchedChild child, const SandboxLimits& limits)
      : child_(std::move(child)), limits_(limits), process_(std::move(child_.process)), launched_(process_.open()) {
    if (!launched_) process_ = open_process(child_.id);
    if (!process_.open()) {
      const int error = errno;
      kill(child_.id, SIGKILL);
      (void)wait_for_child(child_.id);
      throw Error("running a program", text_of("pidfd_open: ", std::strerror(error)));
    }
    wrapped_ = child_.status.open();
    if (wrapped_) {
      setup_end_ = Clock::now() + kSetupTime;
    } else {
      begin();
    }
  }

  SandboxResult run() {
    while (!wait_once()) {
    }
    int status = SIGKILL;
    if (inner_.open()) {  // bubblewrap has ended, perhaps earlier than the processes of its sandbox
      kill_process(inner_);
      wait_readable(inner_.number());
    }
    if (!launched_) {
      // The child is still a zombie, so its process id, which is also the id of its session, cannot be reused yet.
      kill(-child_.id, SIGKILL);
      status = wait_for_child(child_.id);
    }
    drain(child_.output, result_.output, limits_.output_bytes);
    drain(child_.error, result_.error, kMostErrorKept);
    if (wrapped_) drain_status();
    settle(status);
    return std::move(result_);
  }

 private:
  // Waits for one event and handles it. Returns true if the child has ended.
  bool wait_once() {
    std::array<pollfd, 5> ready{{{process_.number(), POLLIN, 0},
                                 {child_.output.number(), POLLIN, 0},
                                 {child_.error.number(), POLLIN, 0},
                                 {child_.status.number(), POLLIN, 0},
                                 {ended_ ? -1 : limits_.stop, POLLIN, 0}}};
    poll_until(ready, ended_ ? kNoDeadline : deadline());
    if (ready[1].revents != 0) read_some(child_.output, result_.output, limits_.output_bytes);
    if (ready[2].revents != 0) read_some(child_.error, result_.error, kMostErrorKept);
    if (ready[3].revents != 0) read_status();
    if (ready[0].revents != 0) return true;
    if (ready[4].revents != 0 && !ended_) end();
    if (!ended_ && Clock::now() >= deadline()) meet_deadline();
    return false;
  }

  [[nodiscard]] Clock::time_point deadline() const {
    return !began_ ? setup_end_ : std::min(whole_.next(), silence_.next());
  }

  // Starts the time limits when the program begins.
  void begin() {
    began_ = true;
    whole_ = Allowance(limits_.wall_time, {});
    if (limits_.silence.count() > 0) silence_ = Allowance(limits_.silence, {});
  }

  [[nodiscard]] ProcessorTime processor_time() const {
    return processor_time_of_tree(launched_ ? process_of(process_.number()) : child_.id);
  }

  void meet_deadline() {
    if (!began_) {
      is_late_ = true;
      return end();
    }
    const ProcessorTime processor = processor_time();
    for (Allowance* allowance : {&whole_, &silence_}) {
      if (Clock::now() < allowance->next() || !allowance->is_over(processor)) continue;
      result_.timed_out = true;
      return end();
    }
  }

  // Reads once from the pipe and keeps the first `kept` bytes in total. Returns false if there is no more data for now.
  bool read_some(Descriptor& from, std::string& into, std::size_t kept) {
    if (!from.open()) return false;
    std::array<char, 1 << 16> bytes;
    const ssize_t count = read(from.number(), bytes.data(), bytes.size());
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (count <= 0) {
      from = Descriptor();
      return false;
    }
    const auto size = static_cast<std::size_t>(count);
    into.append(bytes.data(), std::min(kept - std::min(kept, into.size()), size));
    std::uint64_t& printed = &into == &result_.output ? output_bytes_ : error_bytes_;
    printed += size;
    if (&into == &result_.output && limits_.silence.count() > 0 && began_ && !ended_) {
      silence_ = Allowance(limits_.silence, processor_time().used);
    }
    if (printed <= limits_.output_bytes) return true;
    result_.output_exceeded = true;
    if (!ended_) end();
    return false;
  }

  // Reads the data that is in the pipe now. Does not wait for its end, because a process that left the session may keep
  // the pipe open.
  void drain(Descriptor& from, std::string& into, std::size_t kept) {
    while (read_some(from, into, kept)) {
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
    said_.append(bytes.data(), std::min(kMostSaid - said_.size(), static_cast<std::size_t>(count)));
    if (!launched_ && !inner_.open()) {
      if (const auto id = number_after(said_, "\"child-pid\":")) inner_ = open_process(*id);
    }
    if (!began_ && said_.find(kBegan) != std::string::npos) begin();
    return true;
  }

  void drain_status() {
    while (read_status()) {
    }
  }

  // Kills the program. When the first process of a sandbox dies, the kernel kills all others. Bubblewrap is killed too:
  // it may have been stopped (SIGSTOP) and would then not exit.
  void end() {
    ended_ = true;
    if (launched_) {
      kill_process(process_);
    } else if (wrapped_) {
      if (inner_.open()) kill_process(inner_);
      kill(child_.id, SIGKILL);
    } else {
      kill(-child_.id, SIGKILL);
    }
  }

  // Sets the status and `failure`. If the sandbox ends without a status line after the program has begun, the program
  // has caused it, and this is not a failure of the sandbox.
  void settle(int status) {
    const std::optional<int> told = wrapped_ ? number_after(said_, launched_ ? kEndedKey : kExitCode) : std::nullopt;
    if (wrapped_ && !told) status = SIGKILL;
    if (launched_ && told) status = *told;
    if (is_late_) {
      result_.failure = text_of("the sandbox was not ready within ", kSetupTime.count(), " s");
    } else if (wrapped_ && !ended_ && !told) {
      const std::size_t failed = launched_ ? said_.find(kFailed) : std::string::npos;
      if (failed != std::string::npos) {
        result_.failure = trim(std::string_view(said_).substr(failed + kFailed.size()));
      } else if (!began_) {
        const std::string_view reason = launched_ ? std::string_view() : trim(result_.error);
        result_.failure = reason.empty() ? "the sandbox ended before the program started" : std::string(reason);
      }
    }
    result_.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (result_.exit_status > 128 && result_.exit_status <= 128 + SIGRTMAX) result_.signal = result_.exit_status - 128;
  }

  WatchedChild child_;
  SandboxLimits limits_;
  Descriptor process_;  // pidfd of the child
  Descriptor inner_;    // pidfd of the first process in a bubblewrap sandbox
  SandboxResult result_;
  std::string said_;  // lines from the status pipe
  Clock::time_point setup_end_;
  Allowance whole_;
  Allowance silence_;
  std::uint64_t output_bytes_ = 0;  // bytes read from standard output, including dropped ones
  std::uint64_t error_bytes_ = 0;   // the same for standard error
  bool wrapped_ = false;            // there is a status pipe, from the Launcher or bubblewrap
  bool launched_ = false;           // the process is from a Launcher
  bool began_ = false;              // the program, and with it its time, has begun
  bool is_late_ = false;            // the sandbox was not ready in time
  bool ended_ = false;              // the program was killed
};

}  // namespace

SandboxResult watch(WatchedChild child, const SandboxLimits& limits) { return Watch(std::move(child), limits).run(); }

}  // namespace hone
