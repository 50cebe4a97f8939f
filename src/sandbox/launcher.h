// Sandboxes that hone makes itself, of the kernel's name spaces.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
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
  using Wait = std::function<void(std::chrono::milliseconds)>;

  // With drop_root the server becomes "nobody", whom limits bind as they do not bind root. `wait` is called between two
  // attempts; if it is empty, the calling thread sleeps.
  explicit Launcher(bool drop_root, Wait wait = {});

  // The first process of a new sandbox (a pidfd), with which all others of it end; it ends with the program. Waits
  // where the system is short of processes, memory or the like for now. Throws Error where it makes none, with the step
  // that the system refused and its reason: at once if the refusal is lasting (EPERM, ENOSYS, ...), after 12 attempts
  // if it is a shortage.
  [[nodiscard]] Descriptor launch(const LaunchPlan& plan, const LaunchStreams& streams);

 private:
  // What came of one request to the server.
  struct Attempt {
    Descriptor process;          // the pidfd; not open if a step was refused
    const char* step = nullptr;  // the refused step
    int error = 0;               // errno of that step
  };
  // Starts the server if it does not run. Throws Error if a new server ends without an answer.
  [[nodiscard]] Attempt try_launch(std::span<const int> passed);

  Wait wait_;
  std::mutex mutex_;
  ServerProcess server_;
};

}  // namespace hone
