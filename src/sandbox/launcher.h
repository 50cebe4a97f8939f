// Starts programs in sandboxes that hone builds from Linux namespaces.
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

// Descriptors that a program is connected to. The caller keeps ownership.
struct LaunchStreams {
  int input = -1;
  int output = -1;
  int error = -1;
  // Receives one line per event: "began" just before the program starts and "ended STATUS" when it has ended, with its
  // status as wait() gives it; or "failed REASON" if the sandbox cannot be built.
  int status = -1;
  int control_group = -1;  // cgroup.procs of the program's control group; -1: the control group of this process
};

// Owns a server process that clones a first process for each sandbox. The server and all programs are killed when this
// object is destroyed and when this process ends for any reason. Thread-safe.
class Launcher {
 public:
  using Wait = std::function<void(std::chrono::milliseconds)>;

  // With drop_root the server runs as "nobody", because some resource limits do not apply to root. `wait` is called
  // between two attempts; if it is empty, the calling thread sleeps.
  explicit Launcher(bool drop_root, Wait wait = {});

  // Creates a sandbox and returns a pidfd of its first process, which exits when the program ends; the kernel then
  // kills all other processes of the sandbox. Throws Error with the refused step and the system's reason if no sandbox
  // can be created: immediately if the refusal is lasting (EPERM, ENOSYS, ...), after 12 attempts if the system lacks
  // processes, memory or descriptors.
  [[nodiscard]] Descriptor launch(const LaunchPlan& plan, const LaunchStreams& streams);

 private:
  // Result of one request to the server.
  struct Attempt {
    Descriptor process;          // the pidfd; not open if a step was refused
    const char* step = nullptr;  // the refused step
    int error = 0;               // errno of that step
  };
  // Starts the server unless it is running. Throws Error if a new server ends without an answer.
  [[nodiscard]] Attempt try_launch(std::span<const int> passed);

  Wait wait_;
  std::mutex mutex_;
  ServerProcess server_;
};

}  // namespace hone
