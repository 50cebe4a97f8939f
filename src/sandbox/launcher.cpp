#include "sandbox/launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <span>
#include <thread>

#include "core/error.h"
#include "sandbox/inside.h"
#include "system/child.h"
#include "system/streams.h"

namespace hone {
namespace {

constexpr const char* kVariable = "HONE_SANDBOX_LAUNCHER";  // environment variable that makes the executable the server
constexpr const char* kDropRoot = "drop-root";              // values of the variable
constexpr const char* kKeepUser = "keep-user";
constexpr std::size_t kLeastPassed = 5;  // descriptors per request: plan and streams; a control group may follow
constexpr int kMostTries = 12;           // the pause between attempts doubles: about 10 s together
constexpr std::chrono::milliseconds kFirstPause{5};

// Returns true for errors that are likely to disappear, such as ETOOMANYREFS: the number of descriptors in flight is
// limited for all processes of a user together.
bool is_shortage(int error) {
  constexpr std::array kShortages = {ETOOMANYREFS, EAGAIN, ENOMEM, ENOBUFS, EMFILE, ENFILE};
  return std::ranges::find(kShortages, error) != kShortages.end();
}

// --- In the server

// Network namespaces without interfaces, each lent to one program at a time. They are reused, because creating one
// takes longer than creating all other namespaces together.
class Networks {
 public:
  // Moves this process to a free network namespace, creating one if necessary. Returns false, with errno set, on
  // failure.
  bool enter() {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (all_[i].program != 0) continue;
      if (i != current_ && setns(all_[i].space.number(), CLONE_NEWNET) != 0) return false;
      current_ = i;
      return true;
    }
    if (unshare(CLONE_NEWNET) != 0) return false;
    current_ = all_.size();
    Descriptor space(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
    if (!space.open()) return false;
    all_.push_back({.space = std::move(space)});
    return true;
  }
  // begin() marks the namespace entered last as used by the program with this first process; end() frees it when that
  // process, and with it every other process of the program, has ended.
  void begin(pid_t program) { all_[current_].program = program; }
  void end(pid_t program) {
    for (Network& network : all_) {
      if (network.program == program) network.program = 0;
    }
  }

 private:
  struct Network {
    Descriptor space;
    pid_t program = 0;  // 0: free
  };
  std::vector<Network> all_;
  std::size_t current_ = 0;
};

// Waits until the channel is readable or closed. Meanwhile reaps the children that end and frees their networks.
void wait_for_request(Networks& networks) {
  sigset_t none;
  sigemptyset(&none);
  pollfd ready{kServerChannel, POLLIN, 0};
  do {
    for (pid_t ended = 0; (ended = waitpid(-1, nullptr, WNOHANG)) > 0;) networks.end(ended);
  } while (ppoll(&ready, 1, nullptr, &none) < 0);  // SIGCHLD, unblocked only here, interrupts the wait
}

[[noreturn]] void serve_launches(bool drops_root) {
  if (drops_root && !become_nobody()) _exit(1);
  // The children write their own user id maps. The files in /proc belong to root if a process is not dumpable.
  if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0) _exit(1);
  const Descriptor self = open_process(getpid());
  const LaunchServer server{.process = self.number(), .user = geteuid(), .group = getegid()};
  // In its new user namespace the server may create network namespaces and switch between them.
  const bool is_entered = unshare(CLONE_NEWUSER) == 0 && map_user(server.user, server.group, server);
  const int refused = is_entered ? 0 : errno;
  Networks networks;
  constexpr unsigned long kSpaces = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS;
  // One request per message: the plan and the streams as descriptors. The answer is a pidfd, or errno without
  // descriptor.
  for (;;) {
    wait_for_request(networks);
    NumberedDescriptors asked;
    if (!receive_numbered(kServerChannel, asked) || asked.descriptors.size() < kLeastPassed) _exit(0);
    const auto number = [&](std::size_t i) { return asked.descriptors[i].number(); };
    int process = -1;
    long id = -1;
    errno = refused;
    // The raw system call returns twice like fork(); the wrapper clone() of the C library needs a new stack.
    if (is_entered && networks.enter()) {
      id = syscall(SYS_clone, kSpaces | CLONE_PIDFD | SIGCHLD, nullptr, &process, nullptr, nullptr);
    }
    if (id == 0) {
      run_inside(number(0),
                 {.input = number(1),
                  .output = number(2),
                  .error = number(3),
                  .status = number(4),
                  .control_group = asked.descriptors.size() > kLeastPassed ? number(5) : -1},
                 server);
    }
    const int error = id < 0 ? errno : 0;
    if (id > 0) networks.begin(static_cast<pid_t>(id));
    asked.descriptors.clear();
    const Descriptor made(process);
    while (!send_numbered(kServerChannel, error, {&process, id < 0 ? 0U : 1U})) {
      if (!is_shortage(errno)) _exit(0);
      (void)poll(nullptr, 0, static_cast<int>(kFirstPause.count()));
    }
  }
}

__attribute__((constructor)) void become_launcher_if_asked() {
  const char* asked = server_value(kVariable);
  if (asked == nullptr) return;
  sigset_t child;  // SIGCHLD is blocked except in wait_for_request()
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child, nullptr);
  (void)std::signal(SIGCHLD, [](int) {});
  serve_launches(std::strcmp(asked, kDropRoot) == 0);
}

}  // namespace

// --- In the client

Launcher::Launcher(bool drop_root)
    : server_({.name = "hone-programs",
               .variable = kVariable,
               .value = drop_root ? kDropRoot : kKeepUser,
               .environment = {},
               .socket_type = SOCK_SEQPACKET}) {}

Descriptor Launcher::try_launch(std::span<const int> passed) {
  const std::scoped_lock lock(mutex_);
  server_.start();
  NumberedDescriptors answer;
  errno = 0;
  if (!send_numbered(server_.channel(), 0, passed)) {
    if (!is_shortage(errno)) server_.stop();  // it died
    return {};
  }
  if (!receive_numbered(server_.channel(), answer)) {
    server_.stop();
    errno = ECHILD;
    return {};
  }
  if (answer.descriptors.size() == 1) return std::move(answer.descriptors[0]);
  if (!is_shortage(answer.number)) {
    throw Error("starting a program",
                text_of("no new namespaces: ", std::strerror(answer.number == 0 ? EMFILE : answer.number)));
  }
  errno = answer.number;
  return {};
}

Descriptor Launcher::launch(const LaunchPlan& plan, const LaunchStreams& streams) {
  const Descriptor file = sealed_file(encode(plan));
  std::vector<int> passed = {file.number(), streams.input, streams.output, streams.error, streams.status};
  if (streams.control_group >= 0) passed.push_back(streams.control_group);
  std::chrono::milliseconds pause = kFirstPause;
  for (int attempt = 1;; ++attempt, pause *= 2) {
    Descriptor process = try_launch(passed);
    if (process.open()) return process;
    const int error = errno;
    if (attempt == kMostTries) {
      const char* reason =
          error == ECHILD || error == EPIPE ? "the sandbox server exits immediately" : std::strerror(error);
      throw Error("starting a program", reason);
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace hone
