// Runs this executable a second time as a small server process, connected by a socket.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/descriptor.h"

namespace hone {

inline constexpr int kServerChannel = 3;  // descriptor of the channel in the server

struct ServerPlan {
  std::string name;                      // of the process, as ps and top show it
  std::string variable;                  // environment variable that makes the executable run as this server
  std::string value;                     // of that variable
  std::vector<std::string> environment;  // NAME=VALUE, in addition to that variable
  int socket_type = 0;                   // of the channel: SOCK_STREAM or SOCK_SEQPACKET
};

// Owns a server process. The server is small, has one thread and shares no memory with this process, whose heap may be
// large and whose threads may hold locks. It can therefore fork cheaply and safely, and its children contain no data of
// this process. Its standard streams are /dev/null, its working directory is /, and its session is separate, so that
// Ctrl+C does not reach it. The server must exit when its channel closes, which happens when this object is destroyed
// and when this process ends for any reason.
class ServerProcess {
 public:
  explicit ServerProcess(ServerPlan plan) : plan_(std::move(plan)) {}
  ~ServerProcess() { stop(); }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Starts the server unless it is running. Throws Error with the system's reason.
  void start();
  // Closes the channel and waits for the server to exit. Returns its status, as waitpid() gives it; 0 if it was not
  // running.
  int stop();
  [[nodiscard]] int channel() const { return channel_.number(); }
  [[nodiscard]] pid_t id() const { return id_; }  // 0 if it is not running

 private:
  ServerPlan plan_;
  pid_t id_ = 0;
  Descriptor channel_;
};

// Returns the value of `variable` if this process was started as that server, otherwise null. In the server it also
// ignores SIGINT, SIGTERM, SIGHUP and SIGPIPE. A constructor function of the executable must call it, before main().
[[nodiscard]] const char* server_value(const char* variable);

}  // namespace hone
