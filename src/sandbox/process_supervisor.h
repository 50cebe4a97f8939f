// Supervises a running program: reads its output, waits for its end and kills it when it exceeds a limit.
#pragma once

#include <sys/types.h>

#include "core/descriptor.h"
#include "sandbox/runner.h"

namespace hone {

struct WatchedChild {
  pid_t id = 0;        // process id of a child of this process; 0 if `process` is set
  Descriptor process;  // pidfd of a sandbox's first process, from Launcher::launch()
  Descriptor output;   // read end of the pipe at standard output
  Descriptor error;    // read end of the pipe at standard error
  // Read end of the status pipe that the Launcher or bubblewrap (--json-status-fd) writes to. Closed: the child is the
  // program itself.
  Descriptor status;
};

// Waits for the program and returns its output and status. On return the child and all processes of its session are
// dead. Sets `failure` if the sandbox reported an error, was not ready in time or ended before the program started.
[[nodiscard]] SandboxResult watch(WatchedChild child, const SandboxLimits& limits);

}  // namespace hone
