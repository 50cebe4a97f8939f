// Starts programs in sandboxes that hone builds from Linux namespaces.
#pragma once

#include <sys/types.h>

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
  // With drop_root the server runs as "nobody", because some resource limits do not apply to root.
  explicit Launcher(bool drop_root);

  // Creates a sandbox and returns a pidfd of its first process, which exits when the program ends; the kernel then
  // kills all other processes of the sandbox. Retries for about 10 s while the system lacks processes, memory or
  // descriptors. Throws Error with the system's reason if no sandbox can be created.
  [[nodiscard]] Descriptor launch(const LaunchPlan& plan, const LaunchStreams& streams);

 private:
  // Returns the pidfd, or a closed descriptor with errno set if the attempt should be repeated.
  [[nodiscard]] Descriptor try_launch(std::span<const int> passed);

  std::mutex mutex_;
  ServerProcess server_;
};

}  // namespace hone
