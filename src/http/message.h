// Requests and responses of the HTTP server.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hone {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;  // names and values

struct ServerRequest {
  std::string method;  // in capitals, as it was sent
  std::string target;  // path and query, as they were sent
  HttpHeaders headers;
  std::string body;
  std::string peer;  // ADDRESS:PORT of the client

  // Returns the first value of a header, whose name is compared in any case; empty if there is none.
  [[nodiscard]] std::string_view header(std::string_view name) const;
  // Returns the target without the query.
  [[nodiscard]] std::string_view path() const;
};

struct ServerResponse {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  HttpHeaders headers = {};  // in addition to Content-Type, Content-Length, Date and Connection
};

// Answers one request: either by send(), or by begin_events(), any number of write() and end(). The functions can be
// called from any thread, but not concurrently, never wait for the client, and do nothing once the client has left. A
// reply that is destroyed before the answer is complete sends status 500 or, within a stream, closes the connection.
class ServerReply {
 public:
  ServerReply() = default;
  ServerReply(const ServerReply&) = delete;
  ServerReply& operator=(const ServerReply&) = delete;
  virtual ~ServerReply() = default;

  virtual void send(ServerResponse response) = 0;
  // Begins a stream of server-sent events with status 200.
  virtual void begin_events() = 0;
  virtual void write(std::string_view bytes) = 0;
  virtual void end() = 0;
  // Returns true if the client has closed the connection.
  [[nodiscard]] virtual bool left() const = 0;
  // Returns true if so much is waiting to be sent that the caller should keep the rest for later.
  [[nodiscard]] virtual bool congested() const = 0;
};

// Returns true if the texts are equal, where ASCII letters are compared in any case.
[[nodiscard]] bool equal_in_any_case(std::string_view a, std::string_view b);

}  // namespace hone
