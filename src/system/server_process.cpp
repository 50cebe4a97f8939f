#include "system/server_process.h"

#include <fcntl.h>

#include <csignal>
#include <cstdlib>

#include "core/error.h"
#include "system/child.h"
#include "system/streams.h"

namespace hone {

void ServerProcess::start() {
  if (id_ != 0) return;
  SocketPair sockets = make_socket_pair(plan_.socket_type);
  const Descriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  std::vector<std::string> environment = plan_.environment;
  environment.push_back(text_of(plan_.variable, "=", plan_.value));
  id_ = start_child({.executable = "/proc/self/exe",
                     .arguments = {plan_.name},
                     .environment = std::move(environment),
                     .folder = "/",
                     .descriptors = {nothing.number(), nothing.number(), nothing.number(), sockets.theirs.number()},
                     .limits = {{RLIMIT_CORE, core_limit()}},
                     .spare_from_oom = true});
  channel_ = std::move(sockets.ours);
}

int ServerProcess::stop() {
  channel_ = Descriptor();
  const int status = id_ != 0 ? wait_for_child(id_) : 0;
  id_ = 0;
  return status;
}

const char* server_value(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr) return nullptr;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) (void)std::signal(signal, SIG_IGN);
  return value;
}

}  // namespace hone
