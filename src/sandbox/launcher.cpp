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
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "core/error.h"
#include "sandbox/sandbox_init.h"
#include "system/child.h"
#include "system/streams.h"

namespace hone {
namespace {

constexpr const char* kVariable = "HONE_SANDBOX_LAUNCHER";  // environment variable that makes the executable the server
constexpr const char* kDropRoot = "drop-root";              // values of the variable
constexpr const char* kKeepUser = "keep-user";
constexpr std::size_t kLeastPassed = 5;  // the plan and the streams; a control group may follow
constexpr int kMostTries = 12;           // with pauses between them that double: 10 s together
constexpr std::chrono::milliseconds kFirstPause{5};

// Returns true for errors that are likely to disappear, such as ETOOMANYREFS: the number of descriptors in flight is
// limited for all processes of a user together.
bool is_shortage(int error) {
  constexpr std::array kShortages = {ETOOMANYREFS, EAGAIN, ENOMEM, ENOBUFS, EMFILE, ENFILE};
  return std::ranges::find(kShortages, error) != kShortages.end();
}

// Steps on the way to a sandbox that the system may refuse, in their order.
enum class Step : std::uint8_t {
  kNone,
  // of the server, before its first program
  kUser,
  kDumpable,
  kPidfd,
  kUserNamespace,
  kUserMap,
  // for each program
  kDescriptors,
  kNetwork,
  kProcess
};

const char* name_of(Step step) {
  switch (step) {
    case Step::kUser:
      return "changing from root to nobody";
    case Step::kDumpable:
      return "PR_SET_DUMPABLE";
    case Step::kPidfd:
      return "pidfd_open";
    case Step::kUserNamespace:
      return "a new user namespace";
    case Step::kUserMap:
      return "the user map of a new user namespace";
    case Step::kNetwork:
      return "a new network namespace";
    case Step::kProcess:
      return "a process in new namespaces";
    case Step::kNone:
    case Step::kDescriptors:
      break;
  }
  return "passing descriptors";
}

// A step that the system refused. The server sends it as one number.
struct Refusal {
  Step step = Step::kNone;  // none: nothing was refused
  int error = 0;            // errno
};

constexpr int kErrors = 4096;  // more than the largest errno

std::int32_t encode(const Refusal& refusal) { return static_cast<int>(refusal.step) * kErrors + refusal.error; }
Refusal decode(std::int32_t number) { return {static_cast<Step>(number / kErrors), number % kErrors}; }

// The step that has just failed, with errno; a write that is cut short sets none.
Refusal refused(Step step) { return {step, errno != 0 ? errno : EIO}; }

// --- in the server

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

// Makes this process ready to start programs, and describes it in `server`, whose pidfd is `self` from then on.
Refusal prepare_server(bool drops_root, Descriptor& self, LaunchServer& server) {
  errno = 0;
  if (drops_root && !become_nobody()) return refused(Step::kUser);
  // The children write their own user id maps. The files in /proc belong to root if a process is not dumpable.
  if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0) return refused(Step::kDumpable);
  self = open_process(getpid());
  if (!self.open()) return refused(Step::kPidfd);
  server = {.process = self.number(), .user = geteuid(), .group = getegid()};
  // A space of users in which it may make networks and go from one to another.
  if (unshare(CLONE_NEWUSER) != 0) return refused(Step::kUserNamespace);
  if (!map_user(server.user, server.group, server)) return refused(Step::kUserMap);
  return {};
}

[[noreturn]] void serve_launches(bool drops_root) {
  Descriptor self;
  LaunchServer server;
  const Refusal unprepared = prepare_server(drops_root, self, server);
  Networks networks;
  constexpr unsigned long kSpaces = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS;
  // One request per message: the plan and the streams as descriptors. The answer is a pidfd, or errno without
  // descriptor.
  for (;;) {
    wait_for_request(networks);
    NumberedDescriptors asked;
    if (!receive_numbered(kServerChannel, asked)) _exit(0);
    const auto number = [&](std::size_t i) { return asked.descriptors[i].number(); };
    int process = -1;
    long id = -1;
    // A server that is not prepared starts nothing: it may still be root.
    Refusal refusal = unprepared;
    if (refusal.step == Step::kNone && asked.descriptors.size() != static_cast<std::size_t>(asked.number)) {
      refusal = {Step::kDescriptors, EMFILE};  // this process had no room for all of them
    }
    if (refusal.step == Step::kNone && !networks.enter()) refusal = refused(Step::kNetwork);
    if (refusal.step == Step::kNone) {
      // The raw system call returns twice like fork(); the wrapper clone() of the C library needs a new stack.
      id = syscall(SYS_clone, kSpaces | CLONE_PIDFD | SIGCHLD, nullptr, &process, nullptr, nullptr);
      if (id < 0) refusal = refused(Step::kProcess);
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
    if (id > 0) networks.begin(static_cast<pid_t>(id));
    asked.descriptors.clear();
    const Descriptor made(process);
    while (!send_numbered(kServerChannel, encode(refusal), {&process, id < 0 ? 0U : 1U})) {
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

// --- in the process that asks

constexpr std::string_view kStarting = "starting a program";

// Returns true for errors of a channel whose other end is closed.
bool is_hang_up(int error) {
  return error == EPIPE || error == ECONNRESET || error == ENOTCONN || error == ECONNREFUSED;
}

// Describes the end of a process, from its status.
std::string end_of(int status) {
  return WIFSIGNALED(status) ? text_of("signal ", WTERMSIG(status)) : text_of("exit status ", WEXITSTATUS(status));
}

}  // namespace

Launcher::Launcher(bool drop_root, Wait wait)
    : wait_(wait ? std::move(wait) : [](std::chrono::milliseconds pause) { std::this_thread::sleep_for(pause); }),
      server_({.name = "hone-programs",
               .variable = kVariable,
               .value = drop_root ? kDropRoot : kKeepUser,
               .environment = {},
               .socket_type = SOCK_SEQPACKET}) {}

Launcher::Attempt Launcher::try_launch(std::span<const int> passed) {
  const std::scoped_lock lock(mutex_);
  for (bool is_new = server_.id() == 0;; is_new = true) {
    server_.start();
    NumberedDescriptors answer;
    const bool is_sent = send_numbered(server_.channel(), static_cast<std::int32_t>(passed.size()), passed);
    if (!is_sent && !is_hang_up(errno)) return {{}, name_of(Step::kDescriptors), errno};
    if (is_sent && receive_numbered(server_.channel(), answer)) {
      if (answer.descriptors.size() == 1) return {std::move(answer.descriptors[0]), nullptr, 0};
      const Refusal refusal = decode(answer.number);
      // The program runs, but this process had no room for its pidfd. A second one would share its streams.
      if (refusal.step == Step::kNone) throw Error(kStarting, text_of("the pidfd: ", std::strerror(EMFILE)));
      if (refusal.step < Step::kDescriptors) server_.stop();  // a new one may come further
      return {{}, name_of(refusal.step), refusal.error};
    }
    // A server that has started programs before may have been killed; a new one that ends will end again.
    const int status = server_.stop();
    if (is_new) throw Error(kStarting, text_of("the server that starts them ended early: ", end_of(status)));
  }
}

Descriptor Launcher::launch(const LaunchPlan& plan, const LaunchStreams& streams) {
  const Descriptor file = sealed_file(encode(plan));
  std::vector<int> passed = {file.number(), streams.input, streams.output, streams.error, streams.status};
  if (streams.control_group >= 0) passed.push_back(streams.control_group);
  std::chrono::milliseconds pause = kFirstPause;
  for (int attempt = 1;; ++attempt, pause *= 2) {
    Attempt made = try_launch(passed);
    if (made.process.open()) return std::move(made.process);
    if (attempt == kMostTries || !is_shortage(made.error)) {
      throw Error(kStarting, text_of(made.step, ": ", std::strerror(made.error)));
    }
    wait_(pause);
  }
}

}  // namespace hone
