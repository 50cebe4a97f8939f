// Waits for a program, reading what it prints, and ends it at its limits.
#pragma once

#include <sys/types.h>

#include "reward/math/fork_server.h"
#include "reward/sandbox/runner.h"

namespace hone {

struct WatchedChild {
  pid_t id = 0;
  Descriptor output;  // reading ends
  Descriptor error;
  Descriptor status;  // of what bubblewrap says (--json-status-fd); closed: the child is the program itself
};

// The child, and all of its session, is gone on return. exit_status is the program's; `failure` is set where bubblewrap
// ended before the program began.
[[nodiscard]] SandboxResult watch(WatchedChild child, const SandboxLimits& limits);

}  // namespace hone
