// Sandboxes that hone makes itself, of the kernel's name spaces.
#pragma once

#include <sys/types.h>

#include <mutex>
#include <span>

#include "core/descriptor.h"
#include "sandbox/launch_plan.h"
#include "system/server_process.h"

namespace hone {

// What the program is connected with; they stay the caller's.
struct LaunchStreams {
  int input = -1;
  int output = -1;
  int error = -1;
  // Is told in lines how it goes: "began" when the program is about to start, then "ended STATUS" with what wait()
  // gives of it; or "failed REASON" where there could be no sandbox.
  int status = -1;
  int control_group = -1;  // cgroup.procs of the group that the program is to be in; -1: that of the caller
};

// Asks a server for each program. The server and all programs end with this object or with this process, in whatever
// way they end. Any thread may call.
class Launcher {
 public:
  // With drop_root the server becomes "nobody", whom limits bind as they do not bind root.
  explicit Launcher(bool drop_root);

  // The first process of a new sandbox (a pidfd), with which all others of it end; it ends with the program. Waits
  // where the system is short of processes, memory or the like for now. Throws Error with the system's reason where it
  // makes none.
  [[nodiscard]] Descriptor launch(const LaunchPlan& plan, const LaunchStreams& streams);

 private:
  // The pidfd; not open where the system is short of something for now.
  [[nodiscard]] Descriptor try_launch(std::span<const int> passed);

  std::mutex mutex_;
  ServerProcess server_;
};

}  // namespace hone
