// A child process with its own descriptors, limits and session.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "core/descriptor.h"

namespace hone {

inline constexpr unsigned kNobody = 65534;  // the user and the group

struct ResourceLimit {
  int resource = 0;  // RLIMIT_...
  rlim_t most = 0;   // soft and hard
};

struct ChildPlan {
  std::string executable;  // a path; empty: the first argument
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  // NAME=VALUE
  std::string folder;                    // to start in; empty: this process's
  std::vector<int> descriptors;          // become 0, 1, ... of the child, which has no others
  std::vector<ResourceLimit> limits;
  bool dies_with_thread = false;  // killed when the thread that starts it ends, as when this process does
  int control_group = -1;         // cgroup.procs of the group to be in; -1: this process's
  bool spare_from_oom = false;    // else it is among the first to be ended where the system runs short of memory
  bool drop_root = false;         // become "nobody", whom the limit on processes binds as it does not bind root
};

// Makes this process and its children among the first to be ended where the system runs short of memory. Calls nothing
// that a child of fork() may not.
void offer_to_oom_killer();

// Starts it as the leader of a session, with default signals.
// The caller waits for it. Quick however large this process is. Throws Error with the system's reason.
[[nodiscard]] pid_t start_child(const ChildPlan& plan);

// For RLIMIT_CORE: 1 keeps the kernel also from a program that /proc/sys/kernel/core_pattern names, which it starts for
// a limit of 0; that, where this process may have no other.
[[nodiscard]] rlim_t core_limit();

// All signals of this process as a new one has them, and none blocked. Calls nothing that a child of fork() may not.
void default_signals();

// Makes the calling thread that user and group, with no others. False, with errno, where the system does not let it.
// Calls nothing that a child of fork() may not.
[[nodiscard]] bool become_nobody();

// The first NAME of the folders in PATH, and of /usr/bin, that may be run; all of them, in order.
[[nodiscard]] std::vector<std::string> executables_named(std::string_view name);

// The environment of this process, NAME=VALUE.
[[nodiscard]] std::vector<std::string> current_environment();

// As execve() wants them: ended by a null. The texts stay the caller's.
[[nodiscard]] std::vector<char*> pointers_to(const std::vector<std::string>& texts);

// Waits for the end of a child; its status, as waitpid() gives it (SIGKILL's where there is no such child).
int wait_for_child(pid_t id);
// Clears the child away where it has ended; false where it runs.
[[nodiscard]] bool has_ended(pid_t id);

// A pidfd, which can be read once the process has ended; not open, with errno, where there is none.
[[nodiscard]] Descriptor open_process(pid_t id);
// Kills the process of a pidfd; one that has ended is left alone.
void kill_process(const Descriptor& process);

}  // namespace hone
