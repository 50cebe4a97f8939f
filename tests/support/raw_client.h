// A client on loopback that sends whatever bytes a test gives it, valid HTTP or not.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace hone::test {

struct RawResponse {
  int status = 0;  // 0: the connection was closed before a whole response
  std::string head;
  std::string body;  // without the framing of chunks
};

class RawClient {
 public:
  explicit RawClient(std::uint16_t port);
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  virtual ~RawClient();

  // Sends all bytes, or as many as the server takes before it closes the connection.
  void send(std::string_view bytes);
  // Waits for the next response and returns it whole.
  [[nodiscard]] RawResponse receive();
  // Waits until `text` has arrived. Returns false if the connection is closed before.
  [[nodiscard]] bool wait_for(std::string_view text);
  // Waits until the server closes the connection. Returns what has arrived and was not returned before.
  [[nodiscard]] std::string rest();
  virtual void close();

 protected:
  // Write or read some bytes on the connection, as ::send and ::recv do.
  [[nodiscard]] virtual ssize_t write_some(std::string_view bytes);
  [[nodiscard]] virtual ssize_t read_some(char* bytes, std::size_t size);

  int socket_ = -1;

 private:
  // Waits for more bytes. Returns false at the end of the stream.
  bool more();

  std::string arrived_;
};

// A request with the headers that it needs. `more`: whole lines.
[[nodiscard]] std::string http_request(std::string_view method, std::string_view target, std::string_view body = {},
                                       std::string_view more = {});
// Sends one request over a new connection.
[[nodiscard]] RawResponse fetch(std::uint16_t port, std::string_view method, std::string_view target,
                                std::string_view body = {}, std::string_view more = {});

}  // namespace hone::test
