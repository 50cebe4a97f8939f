#include "system/fork_server.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>
#include <vector>

#include "core/error.h"
#include "system/child.h"
#include "system/poll.h"
#include "system/streams.h"

namespace hone {
namespace {

constexpr const char* kForkServerVariable = "HONE_FORK_SERVER";  // environment variable that holds the service's name
constexpr std::chrono::seconds kReapEvery{1};

struct ForkRequest {
  enum class Kind : std::int32_t { kFork, kKill } kind = Kind::kFork;
  std::int32_t id = 0;
};

// --- in the server

[[noreturn]] void run_worker(const ForkService& service, int channel) {
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() == 1) ::_exit(0);
  const rlimit no_core{0, 0};
  (void)::setrlimit(RLIMIT_CORE, &no_core);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const rlimit memory{service.memory_bytes, service.memory_bytes};
  (void)::setrlimit(RLIMIT_AS, &memory);
#endif
  (void)::dup2(channel, kServerChannel);  // replaces the server's channel, which must close when the server ends
  (void)::close_range(kServerChannel + 1, ~0u, 0);
  service.serve(kServerChannel);
  ::_exit(0);
}

class ForkingServer {
 public:
  explicit ForkingServer(const ForkService& service) : service_(service) {}

  [[noreturn]] void run() {
    for (;;) {
      std::erase_if(workers_, [](pid_t id) { return has_ended(id); });
      const auto deadline = workers_.empty() ? kNoDeadline : std::chrono::steady_clock::now() + kReapEvery;
      if (!wait_readable(kServerChannel, deadline)) continue;
      ForkRequest request;
      if (!read_all(kServerChannel, {reinterpret_cast<char*>(&request), sizeof request})) break;
      if (request.kind == ForkRequest::Kind::kKill) {
        end(request.id);
      } else if (!fork_worker()) {
        break;
      }
    }
    while (!workers_.empty()) end(workers_.back());
    ::_exit(0);
  }

 private:
  // Sends the worker's process id and channel, or 0 without a channel if no worker could be created. Returns false if
  // the client has closed the channel.
  bool fork_worker() {
    SocketPair sockets;
    try {
      sockets = make_socket_pair(SOCK_STREAM);
    } catch (const Error&) {
      return send_numbered(kServerChannel, 0, {});
    }
    const pid_t id = ::fork();
    if (id == 0) run_worker(service_, sockets.theirs.number());
    if (id < 0) return send_numbered(kServerChannel, 0, {});
    workers_.push_back(id);
    const int channel = sockets.ours.number();
    return send_numbered(kServerChannel, id, {&channel, 1});
  }

  // Kills only children that have not been reaped: until then no other process can get their id.
  void end(pid_t id) {
    const auto place = std::ranges::find(workers_, id);
    if (place == workers_.end()) return;
    (void)::kill(id, SIGKILL);
    (void)wait_for_child(id);
    workers_.erase(place);
  }

  ForkService service_;
  std::vector<pid_t> workers_;
};

}  // namespace

void become_fork_server_if_asked(const ForkService& service) {
  const char* asked = server_value(kForkServerVariable);
  if (asked != nullptr && std::strcmp(asked, service.name) == 0) ForkingServer(service).run();
}

// --- in the client

ForkServer::ForkServer(const ForkService& service)
    : name_(service.name),
      server_({.name = text_of("hone-", service.name),
               .variable = kForkServerVariable,
               .value = service.name,
               .environment = current_environment(),
               .socket_type = SOCK_STREAM}) {}

ForkedWorker ForkServer::fork() {
  for (int attempt = 0; attempt < 2; ++attempt) {
    server_.start();
    const ForkRequest request;
    NumberedDescriptors worker;
    if (write_all(server_.channel(), {reinterpret_cast<const char*>(&request), sizeof request}) &&
        receive_numbered(server_.channel(), worker) && worker.number > 0 && worker.descriptors.size() == 1) {
      set_nonblocking(worker.descriptors.front().number());
      return {worker.number, std::move(worker.descriptors.front())};
    }
    server_.stop();  // the server has ended or cannot fork; the second attempt starts a new one
  }
  throw Error(name_, "cannot start a worker process");
}

void ForkServer::kill(pid_t id) {
  if (server_.id() == 0) return;
  const ForkRequest request{ForkRequest::Kind::kKill, id};
  (void)write_all(server_.channel(), {reinterpret_cast<const char*>(&request), sizeof request});
}

}  // namespace hone
