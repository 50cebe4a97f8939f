// Passes requests on to other servers of this machine, and their answers back.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "http/message.h"

namespace hone {

// One thread does all reading and writing. Each request has a separate connection to the server that answers it,
// which therefore notices when its client leaves.
class HttpRelay {
 public:
  // Makes the JSON body of a refusal by the relay itself.
  using ErrorBody = std::function<std::string(int status, std::string_view message)>;

  explicit HttpRelay(ErrorBody error_body);
  // Gives up the requests under way and ends the thread.
  ~HttpRelay();
  HttpRelay(const HttpRelay&) = delete;
  HttpRelay& operator=(const HttpRelay&) = delete;

  // Sends a request to the server on a port of 127.0.0.1, and its answer to `reply`: events as they arrive, anything
  // else when it is complete. A server that cannot be reached, or ends before its answer does, gives status 502 or,
  // within events, the end of the client's connection. Calls on_end once nothing is under way any more, on the relay's
  // thread or in the destructor; it must not throw. Thread-safe.
  void forward(ServerRequest request, std::shared_ptr<ServerReply> reply, std::uint16_t port,
               std::function<void()> on_end);

 private:
  struct State;
  class Exchange;

  std::unique_ptr<State> state_;
};

}  // namespace hone
