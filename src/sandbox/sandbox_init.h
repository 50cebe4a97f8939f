// Entry point of the first process in a sandbox: builds the file tree, drops capabilities and runs the program.
#pragma once

#include <sys/types.h>

#include "sandbox/launcher.h"

namespace hone {

// Server process that creates the sandboxes. The ids are those outside of the sandbox's user namespace.
struct LaunchServer {
  int process = -1;  // a pidfd
  uid_t user = 0;
  gid_t group = 0;
};

// Maps the ids of the calling process in its new user namespace: it becomes `user` and `group`, and has the ids of the
// server outside of the namespace. Returns false, with errno set, if the system does not permit it.
[[nodiscard]] bool map_user(uid_t user, gid_t group, const LaunchServer& server);

// Runs the program of a launch plan as the first process of a sandbox and exits when the program ends.
//
// The caller is a clone of the server in new user, PID, mount, IPC and UTS namespaces and in a network namespace
// without interfaces. `plan` is the descriptor of a file that holds an encoded LaunchPlan. In order, the process asks
// the kernel to be killed when the server dies, joins the control group, mounts the file tree of the plan and makes it
// the root with pivot_root, drops all capabilities, installs the seccomp filter, and forks the program. It reports
// progress and errors on `streams.status` (see LaunchStreams).
[[noreturn]] void run_inside(int plan, const LaunchStreams& streams, const LaunchServer& server);

}  // namespace hone
