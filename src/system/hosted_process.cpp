#include "system/hosted_process.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/interrupt.h"
#include "system/child.h"
#include "system/poll.h"
#include "system/streams.h"

namespace hone {
namespace {

constexpr std::size_t kMostSaid = 64 << 10;               // bytes of output that are kept, the last ones
constexpr std::chrono::milliseconds kPollInterval{200};   // interval between checks for Ctrl+C
constexpr std::chrono::milliseconds kToEnd{2000};         // time to exit after the socket was closed
constexpr std::chrono::milliseconds kForTraceback{5000};  // time to print a traceback and exit after SIGUSR1

}  // namespace

HostedProcess::HostedProcess(const std::vector<std::string>& arguments) {
  SocketPair sockets = make_socket_pair(SOCK_STREAM);
  Pipe pipe = make_pipe();
  set_nonblocking(sockets.ours.number());
  const int said = pipe.write.number();
  id_ = start_child({.arguments = arguments,
                     .environment = current_environment(),
                     .folder = {},
                     .descriptors = {sockets.theirs.number(), said, said},
                     .limits = {},
                     .dies_with_thread = true});
  channel_ = std::move(sockets.ours);
  output_pipe_ = std::move(pipe.read);
  process_ = open_process(id_);
  if (!process_.open()) {
    const int error = errno;
    kill(-id_, SIGKILL);
    (void)wait_for_child(id_);
    throw Error("starting a program", text_of("pidfd_open: ", std::strerror(error)));
  }
}

HostedProcess::~HostedProcess() {
  channel_ = Descriptor();
  if (reaped_) return;
  (void)wait_readable(process_.number(), kToEnd);
  kill(-id_, SIGKILL);
  (void)wait_for_child(id_);
}

std::string HostedProcess::ask(std::string line, std::chrono::milliseconds limit, std::size_t most) {
  out_ = std::move(line);
  out_.push_back('\n');
  const Clock::time_point deadline = Clock::now() + limit;
  while (true) {
    throw_if_interrupted();
    wait_some(!out_.empty(), deadline);
    read_said();
    if (!out_.empty()) send_some();
    const bool open = read_answers();
    if (const std::size_t end = in_.find('\n'); end != std::string::npos) {
      read_said();  // output that was printed before the answer
      std::string answer = in_.substr(0, end);
      in_.erase(0, end + 1);
      return answer;
    }
    if (in_.size() > most) throw Failure{"its answer exceeds the limit of length"};
    if (!open || wait_readable(process_.number(), std::chrono::milliseconds(0))) throw ended();
    if (Clock::now() >= deadline) throw late(limit);
  }
}

std::string HostedProcess::take_said() {
  read_said();
  return std::exchange(said_, {});
}

void HostedProcess::wait_some(bool writes, Clock::time_point deadline) {
  std::array<pollfd, 3> ready{{{process_.number(), POLLIN, 0},
                               {channel_.number(), static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), 0},
                               {output_pipe_.number(), POLLIN, 0}}};
  poll_until(ready, std::min(deadline, Clock::now() + kPollInterval));
}

void HostedProcess::send_some() {
  const ssize_t count = send(channel_.number(), out_.data(), out_.size(), MSG_NOSIGNAL);
  if (count > 0) out_.erase(0, static_cast<std::size_t>(count));
}

// Receives bytes until a line is complete or none are left; returns false if the process has closed its end.
bool HostedProcess::read_answers() {
  std::array<char, 1 << 16> bytes;
  while (true) {
    const ssize_t count = recv(channel_.number(), bytes.data(), bytes.size(), 0);
    if (count <= 0) return count < 0 && (errno == EAGAIN || errno == EINTR);
    in_.append(bytes.data(), static_cast<std::size_t>(count));
    if (in_.find('\n', in_.size() - static_cast<std::size_t>(count)) != std::string::npos) return true;
  }
}

void HostedProcess::read_said() {
  std::array<char, 1 << 16> bytes;
  while (output_pipe_.open()) {
    const ssize_t count = read(output_pipe_.number(), bytes.data(), bytes.size());
    if (count < 0) return;
    if (count == 0) {
      output_pipe_ = Descriptor();
      return;
    }
    said_.append(bytes.data(), static_cast<std::size_t>(count));
    if (said_.size() > kMostSaid) said_.erase(0, said_.size() - kMostSaid);
  }
}

HostedProcess::Failure HostedProcess::ended() {
  (void)wait_readable(process_.number(), kToEnd);
  // The process may have closed its socket and still run, so kill its group. If it has ended it is a zombie until the
  // wait below, and no other process can have its id.
  kill(-id_, SIGKILL);
  const int status = wait_for_child(id_);
  reaped_ = true;
  read_said();
  return {WIFEXITED(status) ? text_of("it exited with status ", WEXITSTATUS(status))
                            : text_of("it was killed by signal ", WTERMSIG(status))};
}

HostedProcess::Failure HostedProcess::late(std::chrono::milliseconds limit) {
  kill(id_, SIGUSR1);
  const Clock::time_point deadline = Clock::now() + kForTraceback;
  while (!wait_readable(process_.number(), std::chrono::milliseconds(0)) && Clock::now() < deadline) {
    std::array<pollfd, 2> ready{{{process_.number(), POLLIN, 0}, {output_pipe_.number(), POLLIN, 0}}};
    poll_until(ready, deadline);
    read_said();
  }
  kill(-id_, SIGKILL);
  read_said();
  return {text_of("no answer within ", static_cast<double>(limit.count()) / 1000, " s"), true};
}

}  // namespace hone
