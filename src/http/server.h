// An HTTP/1.1 server with limits for everything that a client can make large or slow.
//
// One thread does all reading and writing. A few threads run the handler, which parses a request and may answer later,
// from any thread, through its ServerReply. A body is either chunked or of a stated length; both together, other
// transfer codings, and a missing or repeated Host are refused (RFC 9112). Pipelined requests are answered in order.
// Whatever is wrong with a request gives status 4xx, after which the connection is closed. With a TlsIdentity all of
// this is over TLS (HTTPS).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "http/bound_address.h"
#include "http/message.h"
#include "http/tls.h"

namespace hone {

// A line of the access log.
struct HttpAccess {
  std::string peer;
  std::string method;  // empty if the request could not be read
  std::string target;
  int status = 0;                // 499: the client left before an answer had begun
  std::uint64_t sent_bytes = 0;  // of the response, with its headers
  double seconds = 0;            // from the end of the request's headers to the end of the response
};

struct HttpOptions {
  std::string host = "127.0.0.1";  // name or address of the interface
  std::uint16_t port = 0;          // 0: any free port
  // These two, bound before the server starts, so that an address in use is an error before it has got ready; null: the
  // server binds them.
  std::shared_ptr<BoundAddress> address = nullptr;
  std::shared_ptr<TlsIdentity> tls = nullptr;  // null: connections are not encrypted
  std::size_t handler_threads = 2;
  std::size_t max_header_bytes = 16 << 10;     // request line and headers; more gives 431
  std::size_t max_body_bytes = 16 << 20;       // body of one request; more gives 413
  std::size_t max_buffered_bytes = 256 << 20;  // bodies of all requests that are being read or handled; more gives 429
  std::size_t max_connections = 4096;          // one more is answered with 429 and closed
  std::size_t max_unsent_bytes = 64 << 10;     // of a stream, after which it is congested
  // Origins whose web pages may read responses (CORS), as the header Origin states them; "*": all.
  std::vector<std::string> allowed_origins;
  // Times after which a connection is closed: between requests or while headers arrive (and before that while TLS is
  // set up), while a body arrives, and while the client takes nothing of a response.
  std::chrono::milliseconds header_timeout{60'000};
  std::chrono::milliseconds body_timeout{120'000};
  std::chrono::milliseconds write_timeout{60'000};
  // Makes the JSON body of a refusal by the server itself.
  std::function<std::string(int status, std::string_view message)> error_body;
  // Called at the end of each request, on the thread of the network. May be empty.
  std::function<void(const HttpAccess&)> on_access;
};

struct HttpServerState;

class HttpServer {
 public:
  using Handler = std::function<void(ServerRequest request, std::shared_ptr<ServerReply> reply)>;

  // Listens and starts the threads. Throws Error if the address cannot be used. `handler` must not throw.
  HttpServer(HttpOptions options, Handler handler);
  // Closes all connections and ends the threads. Replies may live longer; they do nothing then.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] std::uint16_t port() const;
  // Refuses new connections and closes each connection after the response to its current request.
  void drain();
  // Waits until no connection is open, at most this long.
  void wait_until_idle(std::chrono::milliseconds longest) const;
  // Returns the number of open connections.
  [[nodiscard]] std::size_t connections() const;

 private:
  std::shared_ptr<HttpServerState> state_;
};

}  // namespace hone
