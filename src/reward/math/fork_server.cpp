#include "reward/math/fork_server.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "core/error.h"

namespace hone {
namespace {

constexpr const char* kVariable = "HONE_FORK_SERVER";  // in the environment of the executable that is to be a server
constexpr int kServerChannel = 3;
constexpr rlim_t kMostMemory = rlim_t{4} << 30;  // bytes of address space a worker
constexpr int kReapEvery = 1000;                 // ms

struct Request {
  enum class Kind : std::int32_t { fork, kill } kind = Kind::fork;
  std::int32_t id = 0;
};

// --- in the server

// Sends the id and, with it, the descriptor; id 0 and none where there is no worker.
bool send_worker(int channel, std::int32_t id, int descriptor) {
  iovec part{&id, sizeof id};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (id != 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof descriptor);
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  return sendmsg(channel, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof id);
}

[[noreturn]] void run_worker(int channel) {
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() == 1) _exit(0);
  const rlimit no_core{0, 0};
  (void)setrlimit(RLIMIT_CORE, &no_core);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const rlimit memory{kMostMemory, kMostMemory};
  (void)setrlimit(RLIMIT_AS, &memory);
#endif
  (void)dup2(channel, kServerChannel);  // in the place of the server's own, which the workers must not hold
  (void)close_range(kServerChannel + 1, ~0u, 0);
  serve_comparisons(kServerChannel);
  _exit(0);
}

class Server {
 public:
  [[noreturn]] void run() {
    for (;;) {
      reap();
      pollfd ready{kServerChannel, POLLIN, 0};
      const int count = poll(&ready, 1, workers_.empty() ? -1 : kReapEvery);
      if (count == 0 || (count < 0 && errno == EINTR)) continue;
      Request request;
      if (!read_all(kServerChannel, {reinterpret_cast<char*>(&request), sizeof request})) break;
      if (request.kind == Request::Kind::kill) {
        end(request.id);
      } else if (!fork_worker()) {
        break;
      }
    }
    while (!workers_.empty()) end(workers_.back());
    _exit(0);
  }

 private:
  bool fork_worker() {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return send_worker(kServerChannel, 0, -1);
    const pid_t id = ::fork();
    if (id == 0) run_worker(ends[1]);
    close(ends[1]);
    if (id > 0) workers_.push_back(id);
    const bool sent = send_worker(kServerChannel, std::max<pid_t>(id, 0), ends[0]);
    close(ends[0]);
    return sent;
  }

  // Only a child that was not waited for: no other process can have its number.
  void end(pid_t id) {
    const auto place = std::ranges::find(workers_, id);
    if (place == workers_.end()) return;
    (void)::kill(id, SIGKILL);
    while (waitpid(id, nullptr, 0) < 0 && errno == EINTR) {
    }
    workers_.erase(place);
  }

  void reap() {
    std::erase_if(workers_, [](pid_t id) { return waitpid(id, nullptr, WNOHANG) == id; });
  }

  std::vector<pid_t> workers_;
};

// The server must not become what the executable is: it begins here, before main().
__attribute__((constructor)) void become_server_if_asked() {
  const char* asked = std::getenv(kVariable);
  if (asked == nullptr || std::strcmp(asked, "1") != 0) return;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) (void)std::signal(signal, SIG_IGN);
  const int nowhere = open("/dev/null", O_RDWR);
  for (int i = 0; nowhere >= 0 && i < kServerChannel; ++i) (void)dup2(nowhere, i);
  if (nowhere > kServerChannel) close(nowhere);
  Server().run();
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    if (open()) close(number_);
    number_ = other.release();
  }
  return *this;
}
Descriptor::~Descriptor() {
  if (open()) close(number_);
}
int Descriptor::release() { return std::exchange(number_, -1); }

bool read_all(int channel, std::span<char> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = read(channel, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

bool write_all(int channel, std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = send(channel, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

// --- in the process that asks

ForkServer::~ForkServer() { stop(); }

void ForkServer::stop() {
  channel_ = Descriptor();
  if (id_ == 0) return;
  while (waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
  }
  id_ = 0;
}

void ForkServer::start() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw Error("comparisons", text_of("no socket: ", std::strerror(errno)));
  channel_ = Descriptor(ends[0]);
  const Descriptor theirs(ends[1]);
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment.push_back(*entry);
  std::string flag = std::string(kVariable) + "=1";
  environment.push_back(flag.data());
  environment.push_back(nullptr);
  std::string name = "hone-comparisons";
  std::array<char*, 2> arguments = {name.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, theirs.number(), kServerChannel);
  posix_spawn_file_actions_addclosefrom_np(&actions, kServerChannel + 1);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // Ctrl+C is not for it
  const int failure = posix_spawn(&id_, "/proc/self/exe", &actions, &attributes, arguments.data(), environment.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failure != 0) {
    id_ = 0;
    channel_ = Descriptor();
    throw Error("comparisons", text_of("no process: ", std::strerror(failure)));
  }
}

ForkedWorker ForkServer::fork() {
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (!channel_.open()) start();
    const Request request;
    std::int32_t id = 0;
    iovec part{&id, sizeof id};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    ssize_t count = -1;
    if (write_all(channel_.number(), {reinterpret_cast<const char*>(&request), sizeof request})) {
      do count = recvmsg(channel_.number(), &message, MSG_CMSG_CLOEXEC);
      while (count < 0 && errno == EINTR);
    }
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (count == static_cast<ssize_t>(sizeof id) && id > 0 && header != nullptr) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
      (void)fcntl(descriptor, F_SETFL, O_NONBLOCK);
      return {id, Descriptor(descriptor)};
    }
    stop();  // it died, or can fork no more: once more from the beginning
  }
  throw Error("comparisons", "no process could be started for them");
}

void ForkServer::kill(pid_t id) {
  if (!channel_.open()) return;
  const Request request{Request::Kind::kill, id};
  (void)write_all(channel_.number(), {reinterpret_cast<const char*>(&request), sizeof request});
}

}  // namespace hone
