// Child process that answers requests: one line in, one line out.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/descriptor.h"

namespace hone {

// Starts a program, exchanges lines with it and ends it in the destructor. For use by one thread.
class HostedProcess {
 public:
  // Exception for a request without an answer.
  struct Failure {
    std::string what;  // "no answer within 60 s", "it exited with status 3"
    bool timed_out = false;
  };

  // Starts the program. Its standard input is a socket that carries requests and answers; its standard output and
  // standard error are collected for take_said(). The process is killed if the starting thread ends. Throws Error if it
  // cannot be started.
  explicit HostedProcess(const std::vector<std::string>& arguments);
  HostedProcess(const HostedProcess&) = delete;
  HostedProcess& operator=(const HostedProcess&) = delete;
  ~HostedProcess();  // closes the socket, waits up to 2 seconds and kills the process group

  // Sends one request (ask() appends the line break) and returns the answer of at most about `most` bytes. Throws
  // Failure, after which ask() must not be called again, and Interrupted after Ctrl+C. On a timeout the process gets
  // SIGUSR1, so that it can print a traceback and exit, and is killed at most 5 s later.
  [[nodiscard]] std::string ask(std::string line, std::chrono::milliseconds limit, std::size_t most);

  // Returns the text printed on standard output and standard error since the last call: its last 64 KiB.
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
  Descriptor output_pipe_;
  std::string out_;   // bytes not sent yet
  std::string in_;    // bytes received and not returned yet
  std::string said_;  // standard output and standard error since the last take_said()
  bool reaped_ = false;
};

}  // namespace hone
