#include "system/child.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <span>

#include "core/error.h"
#include "core/strings.h"

namespace hone {
namespace {

// Numbers of the system calls ioprio_get and ioprio_set (ioprio_set(2)). The header <linux/ioprio.h> of Linux 6.1.192
// is not C++: it names a parameter `class`.
constexpr int kWhoProcess = 1;
constexpr int kClassShift = 13;
constexpr long kClassRealTime = 1;
constexpr long kClassBestEffort = 2;

constexpr int kAboveTargets = 100;  // lowest number for the copies of descriptors while 0, 1, ... are overwritten

// Data that the child needs between vfork and execve. It shares the memory of this process there and must not allocate,
// so everything is prepared beforehand.
struct Launch {
  const char* path = nullptr;
  char* const* arguments = nullptr;
  char* const* environment = nullptr;
  const char* folder = nullptr;
  std::span<const int> descriptors;
  std::span<int> moved;
  std::span<const ResourceLimit> limits;
  int control_group = -1;
  bool spare_from_oom = false;
  bool drop_root = false;
  bool dies_with_thread = false;
  pid_t parent = 0;
  const char* failed_at = nullptr;  // set by the child: the step that failed
  int error = 0;                    // set by the child: errno of that step
};

bool place_descriptors(const Launch& launch) {
  for (std::size_t i = 0; i < launch.moved.size(); ++i) {
    launch.moved[i] = fcntl(launch.descriptors[i], F_DUPFD, kAboveTargets);
    if (launch.moved[i] < 0) return false;
  }
  for (std::size_t i = 0; i < launch.moved.size(); ++i) {
    if (dup2(launch.moved[i], static_cast<int>(i)) < 0) return false;
  }
  return syscall(SYS_close_range, static_cast<unsigned>(launch.moved.size()), ~0U, 0U) == 0;
}

const char* prepare_child(const Launch& launch) {
  default_signals();
  if (setsid() < 0) return "setsid";
  if (!launch.spare_from_oom) {
    offer_to_oom_killer();
    give_up_precedence();
  }
  if (launch.control_group >= 0 && write(launch.control_group, "0", 1) != 1) return "joining a control group";
  if (!place_descriptors(launch)) return "passing descriptors";
  if (launch.folder != nullptr && chdir(launch.folder) != 0) return "chdir";
  for (const ResourceLimit& limit : launch.limits) {
    const rlimit both{limit.most, limit.most};
    if (setrlimit(static_cast<__rlimit_resource_t>(limit.resource), &both) != 0) return "setrlimit";
  }
  if (launch.drop_root && !become_nobody()) return "setresuid";
  // After the change of user, which resets the parent-death signal. getppid() detects a parent that has ended already.
  if (launch.dies_with_thread && (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != launch.parent)) return "prctl";
  return nullptr;
}

[[noreturn]] void run_child(Launch& launch) {
  launch.failed_at = prepare_child(launch);
  if (launch.failed_at == nullptr) {
    execve(launch.path, launch.arguments, launch.environment);
    launch.failed_at = launch.path;
  }
  launch.error = errno;
  _exit(127);
}

[[gnu::noinline]] pid_t vfork_child(Launch& launch) {
  // posix_spawn can set neither resource limits nor the user. The child makes only system calls before execve.
  // NOLINTNEXTLINE(bugprone-unsafe-functions,clang-analyzer-security.insecureAPI.vfork): intended, see above
  const pid_t id = vfork();
  if (id == 0) run_child(launch);  // NOLINT(clang-analyzer-unix.Vfork): Linux allows system calls before execve
  return id;
}

}  // namespace

void offer_to_oom_killer() {
  const Descriptor file(open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
  if (file.open() && write(file.number(), "1000", 4) != 4) errno = 0;  // a preference only
}

void give_up_precedence() {
  const int policy = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
  const sched_param ordinary{};
  if (policy != SCHED_BATCH && policy != SCHED_IDLE) (void)sched_setscheduler(0, SCHED_OTHER, &ordinary);
  errno = 0;
  const int nice = getpriority(PRIO_PROCESS, 0);
  if (errno == 0 && nice < 0) (void)setpriority(PRIO_PROCESS, 0, 0);
  const long disk = syscall(SYS_ioprio_get, kWhoProcess, 0);
  const long disk_class = disk >> kClassShift & 7;
  const long disk_level = disk & 7;
  const bool is_first = disk >= 0 && disk_class == kClassRealTime;
  const bool is_early = disk >= 0 && disk_class == kClassBestEffort && disk_level < 4;
  if (is_first || is_early) (void)syscall(SYS_ioprio_set, kWhoProcess, 0, 0);  // 0: as the nice value
  errno = 0;
}

void default_signals() {
  struct sigaction action{};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) sigaction(signal, &action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Direct system calls: after vfork the C library's setresuid would change the user of all threads of the parent.
bool become_nobody() {
  return syscall(SYS_setgroups, 0, nullptr) == 0 && syscall(SYS_setresgid, kNobody, kNobody, kNobody) == 0 &&
         syscall(SYS_setresuid, kNobody, kNobody, kNobody) == 0;
}

rlim_t core_limit() {
  rlimit own{};
  return geteuid() == 0 || (getrlimit(RLIMIT_CORE, &own) == 0 && own.rlim_max >= 1) ? 1 : 0;
}

pid_t start_child(const ChildPlan& plan) {
  const std::vector<char*> arguments = pointers_to(plan.arguments);
  const std::vector<char*> environment = pointers_to(plan.environment);
  std::vector<int> moved(plan.descriptors.size());
  Launch launch{.path = plan.executable.empty() ? arguments.front() : plan.executable.c_str(),
                .arguments = arguments.data(),
                .environment = environment.data(),
                .folder = plan.folder.empty() ? nullptr : plan.folder.c_str(),
                .descriptors = plan.descriptors,
                .moved = moved,
                .limits = plan.limits,
                .control_group = plan.control_group,
                .spare_from_oom = plan.spare_from_oom,
                .drop_root = plan.drop_root,
                .dies_with_thread = plan.dies_with_thread,
                .parent = getpid()};
  sigset_t all;  // all signals are blocked around vfork: handlers of this process must not run in the child
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t id = vfork_child(launch);
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (id < 0) throw Error("starting a program", std::strerror(error));
  if (launch.failed_at != nullptr) {
    (void)wait_for_child(id);
    throw Error("starting a program", text_of(launch.failed_at, ": ", std::strerror(launch.error)));
  }
  return id;
}

std::vector<std::string> executables_named(std::string_view name) {
  const char* path = std::getenv("PATH");
  std::vector<std::string> folders = split(path != nullptr ? path : "", ':');
  folders.emplace_back("/usr/bin");
  std::vector<std::string> found;
  for (const std::string& folder : folders) {
    const std::string file = text_of(folder, "/", name);
    if (!folder.starts_with('/') || access(file.c_str(), X_OK) != 0) continue;
    if (std::ranges::find(found, file) == found.end()) found.push_back(file);
  }
  return found;
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  all.reserve(texts.size() + 1);
  for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

std::vector<std::string> current_environment() {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) all.emplace_back(*variable);
  return all;
}

int wait_for_child(pid_t id) {
  int status = SIGKILL;
  while (waitpid(id, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

bool has_ended(pid_t id) { return waitpid(id, nullptr, WNOHANG) == id; }

Descriptor open_process(pid_t id) { return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, id, 0))); }

void kill_process(const Descriptor& process) {
  (void)syscall(SYS_pidfd_send_signal, process.number(), SIGKILL, nullptr, 0);
}

}  // namespace hone
