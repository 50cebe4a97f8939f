// The first process of a sandbox.
#pragma once

#include <sys/types.h>

#include "sandbox/launcher.h"

namespace hone {

// The process that sandboxes are made by, as seen from outside of them.
struct LaunchServer {
  int process = -1;  // a pidfd
  uid_t user = 0;
  gid_t group = 0;
};

// In a new space of users the calling process becomes `user` and `group`; the server's are what it is outside. False,
// with errno, where the system does not let it.
[[nodiscard]] bool map_user(uid_t user, gid_t group, const LaunchServer& server);

// Run by a process that begins in new name spaces (of users, processes, mounts, IPC and host name), and in a network
// without anybody, as a copy of the server: sees to it that it dies with the server, makes the world of the plan, of
// which `plan` is a file, gives up all rights, runs the program, and ends with it.
[[noreturn]] void run_inside(int plan, const LaunchStreams& streams, const LaunchServer& server);

}  // namespace hone
