// Fork server: a small process that forks worker processes on demand, so that the workers do not inherit the memory,
// threads and locks of a large process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "core/descriptor.h"
#include "system/server_process.h"

namespace hone {

// Definition of the workers of one fork server.
struct ForkService {
  const char* name = nullptr;            // "comparisons"; appears in errors and as the name of the server process
  std::uint64_t memory_bytes = 0;        // RLIMIT_AS of a worker
  void (*serve)(int channel) = nullptr;  // body of a worker; `channel` blocks, and serve returns when it is closed
};

// Runs the server and does not return if this process was started as the server of this service; otherwise does
// nothing. A constructor function of the executable must call it, before main().
void become_fork_server_if_asked(const ForkService& service);

struct ForkedWorker {
  pid_t id = 0;
  Descriptor channel;  // bidirectional stream to the worker, non-blocking on this side
};

// Client of a fork server. The workers are children of the server; server and workers end with this object or with this
// process, even if that is killed. Not thread-safe.
class ForkServer {
 public:
  explicit ForkServer(const ForkService& service);

  // Forks a worker; starts the server first if it is not running. Throws Error if no process can be created.
  [[nodiscard]] ForkedWorker fork();
  // Kills and reaps the worker; a worker that has already ended is only reaped.
  void kill(pid_t id);
  [[nodiscard]] pid_t id() const { return server_.id(); }

 private:
  std::string name_;
  ServerProcess server_;
};

}  // namespace hone
