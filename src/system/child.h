// Starts child processes with their own descriptors, resource limits and session, and waits for them.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "core/descriptor.h"

namespace hone {

inline constexpr unsigned kNobody = 65534;  // user and group id of "nobody"

struct ResourceLimit {
  int resource = 0;  // RLIMIT_...
  rlim_t most = 0;   // soft and hard limit
};

// Description of a child process. The child gets only what is listed here.
struct ChildPlan {
  std::string executable;  // path; empty: the first argument
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  // NAME=VALUE
  std::string folder;                    // working directory; empty: that of this process
  std::vector<int> descriptors;          // become descriptors 0, 1, ... of the child; all others are closed
  std::vector<ResourceLimit> limits;
  bool dies_with_thread = false;  // the kernel kills the child when the thread that started it ends
  int control_group = -1;         // descriptor of cgroup.procs of the child's cgroup; -1: the cgroup of this process
  bool spare_from_oom = false;    // false: the OOM killer prefers the child to other processes
  bool drop_root = false;         // run as "nobody": RLIMIT_NPROC does not apply to root
};

// Makes this process and its future children run at the ordinary priority or below: a nice value of at least 0, no
// real-time policy and no precedence at the disk, whatever hone was started with. Async-signal-safe.
void give_up_precedence();

// Makes this process and its future children preferred victims of the OOM killer. Async-signal-safe, so that a child of
// fork() may call it.
void offer_to_oom_killer();

// Starts the child as the leader of a session, with default signal handlers, and returns its process id. The caller
// must wait for it. Uses vfork, so that the cost does not grow with the memory of this process. Throws Error with the
// system's reason.
[[nodiscard]] pid_t start_child(const ChildPlan& plan);

// Value of RLIMIT_CORE that prevents core dumps. With a limit of 0 the kernel still starts the program that
// /proc/sys/kernel/core_pattern names; with 1 it does not. Returns 1 if this process may set it, otherwise 0.
[[nodiscard]] rlim_t core_limit();

// Resets all signal handlers of this process to their defaults and unblocks all signals. Async-signal-safe.
void default_signals();

// Changes the calling thread to user and group kNobody without supplementary groups. Returns false, with errno set, if
// the system does not permit it. Async-signal-safe.
[[nodiscard]] bool become_nobody();

// Returns the paths of all executables with this name in the folders of PATH and in /usr/bin, in search order. Relative
// folders in PATH are skipped.
[[nodiscard]] std::vector<std::string> executables_named(std::string_view name);

// Returns the environment of this process as NAME=VALUE.
[[nodiscard]] std::vector<std::string> current_environment();

// Converts to the null-terminated array that execve() takes. The pointers refer to `texts`, which must outlive them.
[[nodiscard]] std::vector<char*> pointers_to(const std::vector<std::string>& texts);

// Waits until a child ends and returns its status as waitpid() gives it; SIGKILL if there is no such child.
int wait_for_child(pid_t id);
// Reaps the child and returns true if it has ended; returns false if it still runs.
[[nodiscard]] bool has_ended(pid_t id);

// Returns a pidfd, which becomes readable when the process ends; a closed descriptor, with errno set, on failure.
[[nodiscard]] Descriptor open_process(pid_t id);
// Kills the process of a pidfd; does nothing if it has ended.
void kill_process(const Descriptor& process);

}  // namespace hone
