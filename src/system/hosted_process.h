// A child process that is spoken to in lines: one question, one answer.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/descriptor.h"

namespace hone {

class HostedProcess {
 public:
  // Why there is no answer.
  struct Failure {
    std::string what;  // "no answer within 60 s", "it ended with status 3"
    bool timed_out = false;
  };

  // Standard input is a socket for both directions; standard output and standard error are kept for take_said(). The
  // process dies with the thread that starts it. Throws Error.
  explicit HostedProcess(const std::vector<std::string>& arguments);
  HostedProcess(const HostedProcess&) = delete;
  HostedProcess& operator=(const HostedProcess&) = delete;
  ~HostedProcess();  // closes the socket, and kills what does not end by itself soon, with its session

  // Sends the line, to which it adds the end, and waits for one back, at most `most` bytes. Throws Failure, after which
  // nothing may be asked any more, and Interrupted at Ctrl+C. A process that is late gets SIGUSR1 before it is killed,
  // at which it may say where it stands.
  [[nodiscard]] std::string ask(std::string line, std::chrono::milliseconds limit, std::size_t most);

  // What was said on standard output and standard error since the last call, its end where it is long.
  [[nodiscard]] std::string take_said();

 private:
  using Clock = std::chrono::steady_clock;

  void wait_some(bool writes, Clock::time_point deadline);
  void send_some();
  bool read_answers();
  void read_said();
  [[nodiscard]] Failure ended();
  [[nodiscard]] Failure late(std::chrono::milliseconds limit);

  pid_t id_ = 0;
  Descriptor process_;  // a pidfd
  Descriptor channel_;
  Descriptor said_end_;
  std::string out_;  // not sent yet
  std::string in_;
  std::string said_;
  bool reaped_ = false;
};

}  // namespace hone
