#include "reward/sandbox/launcher.h"

#include <fcntl.h>
#include <grp.h>
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
#include "reward/sandbox/inside.h"

namespace hone {
namespace {

constexpr const char* kVariable = "HONE_SANDBOX_LAUNCHER";  // in the environment of the executable that is to be one
constexpr const char* kDropRoot = "drop-root";              // its value
constexpr const char* kKeepUser = "keep-user";
constexpr int kChannel = 3;
constexpr std::size_t kLeastPassed = 5;  // the plan and the streams
constexpr std::size_t kMostPassed = 6;   // and a control group
constexpr int kMostTries = 12;           // with pauses between them that double: 20 s together
constexpr std::chrono::milliseconds kFirstPause{5};

// What the system runs short of now may be there again soon; all users of it share its count of descriptors under way.
bool is_shortage(int error) {
  constexpr std::array kShortages = {ETOOMANYREFS, EAGAIN, ENOMEM, ENOBUFS, EMFILE, ENFILE};
  return std::ranges::find(kShortages, error) != kShortages.end();
}

// A number, and descriptors with it. False where the other side is gone.
bool send_numbered(int channel, std::int32_t number, std::span<const int> descriptors) {
  iovec part{&number, sizeof number};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostPassed * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t count = -1;
  do count = sendmsg(channel, &message, MSG_NOSIGNAL);
  while (count < 0 && errno == EINTR);
  return count == static_cast<ssize_t>(sizeof number);
}

struct Numbered {
  std::int32_t number = 0;
  std::vector<Descriptor> descriptors;
};

bool receive_numbered(int channel, Numbered& received) {
  iovec part{&received.number, sizeof received.number};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostPassed * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t count = -1;
  do count = recvmsg(channel, &message, MSG_CMSG_CLOEXEC);
  while (count < 0 && errno == EINTR);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (count > 0 && header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    std::array<int, kMostPassed> numbers{};
    const std::size_t size = header->cmsg_len - CMSG_LEN(0);
    std::memcpy(numbers.data(), CMSG_DATA(header), size);
    for (std::size_t i = 0; i < size / sizeof(int); ++i) received.descriptors.emplace_back(numbers[i]);
  }
  return count == static_cast<ssize_t>(sizeof received.number);
}

// --- in the server

// One thread alone, so that the library's calls, which would change all threads, are right.
bool drop_root() {
  return setgroups(0, nullptr) == 0 && setresgid(kNobody, kNobody, kNobody) == 0 &&
         setresuid(kNobody, kNobody, kNobody) == 0;
}

// Networks of nothing. Each belongs to one program at a time, and to another one when that has ended: to make one takes
// longer than all the other name spaces together.
class Networks {
 public:
  // Brings this process into one that is free. False, with errno, where there can be none.
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
  // The first process of a program was made in the one entered last; it has ended, and all others of the program.
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

// Until there is something to read, or nobody to write any more; clears away, meanwhile, what has ended.
void wait_for_request(Networks& networks) {
  sigset_t none;
  sigemptyset(&none);
  pollfd ready{kChannel, POLLIN, 0};
  do {
    for (pid_t ended = 0; (ended = waitpid(-1, nullptr, WNOHANG)) > 0;) networks.end(ended);
  } while (ppoll(&ready, 1, nullptr, &none) < 0);  // at the end of a child, by its signal
}

[[noreturn]] void serve_launches(bool drops_root) {
  if (drops_root && !drop_root()) _exit(1);
  // Its children write their own maps of users, which the system lets nobody do who cannot be looked at.
  if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0) _exit(1);
  const Descriptor self(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  const LaunchServer server{.process = self.number(), .user = geteuid(), .group = getegid()};
  // A space of users in which it may make networks and go from one to another.
  const bool is_entered = unshare(CLONE_NEWUSER) == 0 && map_user(server.user, server.group, server);
  const int refused = is_entered ? 0 : errno;
  Networks networks;
  constexpr unsigned long kSpaces = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS;
  for (;;) {
    wait_for_request(networks);
    Numbered asked;
    if (!receive_numbered(kChannel, asked) || asked.descriptors.size() < kLeastPassed) _exit(0);
    const auto number = [&](std::size_t i) { return asked.descriptors[i].number(); };
    int process = -1;
    long id = -1;
    errno = refused;
    // As fork() does it; the library's wrapper wants a stack.
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
    while (!send_numbered(kChannel, error, {&process, id < 0 ? 0U : 1U})) {
      if (!is_shortage(errno)) _exit(0);
      (void)poll(nullptr, 0, static_cast<int>(kFirstPause.count()));
    }
  }
}

// The executable must not become what it is otherwise: the server begins here, before main().
__attribute__((constructor)) void become_launcher_if_asked() {
  const char* asked = std::getenv(kVariable);
  if (asked == nullptr) return;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) (void)std::signal(signal, SIG_IGN);
  sigset_t child;  // comes only while there is nothing to do
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child, nullptr);
  (void)std::signal(SIGCHLD, [](int) {});
  serve_launches(std::strcmp(asked, kDropRoot) == 0);
}

}  // namespace

// --- in the process that asks

void Launcher::start() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw Error("the sandbox for programs", text_of("no socket: ", std::strerror(errno)));
  }
  channel_ = Descriptor(ends[0]);
  const Descriptor theirs(ends[1]);
  const Descriptor nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  id_ = start_child({.arguments = {"/proc/self/exe"},
                     .environment = {text_of(kVariable, "=", drop_root_ ? kDropRoot : kKeepUser)},
                     .folder = "/",
                     .descriptors = {nothing.number(), nothing.number(), nothing.number(), theirs.number()},
                     .limits = {{RLIMIT_CORE, core_limit()}},
                     .spare_from_oom = true});
}

void Launcher::stop() {
  channel_ = Descriptor();
  if (id_ == 0) return;
  while (waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
  }
  id_ = 0;
}

Descriptor Launcher::try_launch(std::span<const int> passed) {
  const std::scoped_lock lock(mutex_);
  if (!channel_.open()) start();
  Numbered answer;
  errno = 0;
  if (!send_numbered(channel_.number(), 0, passed)) {
    if (!is_shortage(errno)) stop();  // it died
    return {};
  }
  if (!receive_numbered(channel_.number(), answer)) {
    stop();
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
          error == ECHILD || error == EPIPE ? "the server that starts them ends at once" : std::strerror(error);
      throw Error("starting a program", reason);
    }
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace hone
