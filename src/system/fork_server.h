// A process that does nothing but fork others, on demand.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "core/descriptor.h"
#include "system/server_process.h"

namespace hone {

// What the forked workers are for.
struct ForkService {
  const char* name = nullptr;            // "comparisons"; errors say it
  std::uint64_t memory_bytes = 0;        // address space of a worker
  void (*serve)(int channel) = nullptr;  // what a worker does until its channel, which blocks, closes
};

// To be called by a constructor of the executable, before main(): where this process is the service's server, it serves
// and does not return.
void become_fork_server_if_asked(const ForkService& service);

struct ForkedWorker {
  pid_t id = 0;
  Descriptor channel;  // a stream to the worker and from it; does not block
};

// Its server's children are the workers. They end when this object does or when this process dies in whatever way. Not
// for use by several threads at once.
class ForkServer {
 public:
  explicit ForkServer(const ForkService& service);

  // Starts the server where it does not run. Throws Error where the system gives no process.
  [[nodiscard]] ForkedWorker fork();
  // Kills the worker, and leaves no zombie; a worker that is dead already is only cleared away.
  void kill(pid_t id);
  [[nodiscard]] pid_t id() const { return server_.id(); }

 private:
  std::string name_;
  ServerProcess server_;
};

}  // namespace hone
