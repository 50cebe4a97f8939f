// Waits for a program, reading what it prints, and ends it at its limits.
#pragma once

#include <sys/types.h>

#include "core/descriptor.h"
#include "sandbox/runner.h"

namespace hone {

struct WatchedChild {
  pid_t id = 0;        // a child of this process; 0: `process` is not
  Descriptor process;  // a pidfd of what a Launcher gave
  Descriptor output;   // reading ends
  Descriptor error;
  // Of what the Launcher's status says, or bubblewrap (--json-status-fd); closed: the child is the program itself.
  Descriptor status;
};

// The child, and all of its session, is gone on return. exit_status is the program's; `failure` is set where the
// sandbox ended before the program.
[[nodiscard]] SandboxResult watch(WatchedChild child, const SandboxLimits& limits);

}  // namespace hone
