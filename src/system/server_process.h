// This executable, started anew as a server of the process that starts it.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/descriptor.h"

namespace hone {

inline constexpr int kServerChannel = 3;  // the server's end of the channel

struct ServerPlan {
  std::string name;                      // of the process, as tools show it
  std::string variable;                  // of its environment: says that the executable is to be this server
  std::string value;                     // the variable's
  std::vector<std::string> environment;  // NAME=VALUE, besides that
  int socket_type = 0;                   // the channel's: SOCK_STREAM or SOCK_SEQPACKET
};

// A process that is small, has one thread, and shares no memory with this one, whose heap may be large and whose
// threads may hold locks: it makes children quickly, and they have nothing of this process in them. Its standard
// streams are /dev/null, its folder is /, and it has its own session, so that Ctrl+C does not reach it. It must end
// when its channel closes: when this object ends, or this process in whatever way.
class ServerProcess {
 public:
  explicit ServerProcess(ServerPlan plan) : plan_(std::move(plan)) {}
  ~ServerProcess() { stop(); }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Where it does not run. Throws Error with the system's reason.
  void start();
  // Closes the channel and waits for the process's end. Returns its status, as waitpid() gives it; 0 if it did not run.
  int stop();
  [[nodiscard]] int channel() const { return channel_.number(); }
  [[nodiscard]] pid_t id() const { return id_; }  // 0: it does not run

 private:
  ServerPlan plan_;
  pid_t id_ = 0;
  Descriptor channel_;
};

// To be called by a constructor of the executable, before main(), so that it does not become what it is otherwise: the
// value of `variable` where this process was started as that server, null elsewhere. In the server it ignores the
// signals by which terminals and users end programs.
[[nodiscard]] const char* server_value(const char* variable);

}  // namespace hone
