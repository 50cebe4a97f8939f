// A RawClient over TLS, which checks the server's certificate.
#pragma once

#include <memory>
#include <string>

#include "support/raw_client.h"

namespace hone::test {

class TlsClient final : public RawClient {
 public:
  // Connects to localhost. Throws std::runtime_error unless the server has a certificate that `trusted` (PEM) signs.
  // `newest` is the newest version of TLS that the client knows (TLS1_2_VERSION, ...), or 0.
  TlsClient(std::uint16_t port, const std::string& trusted, int newest = 0);
  ~TlsClient() override;

  // Closes the connection after a message of TLS that announces it.
  void close() override;
  // Closes the connection without such a message.
  void drop() { RawClient::close(); }
  // Returns true if the server has announced the end of what it sends.
  [[nodiscard]] bool ended_cleanly() const;
  [[nodiscard]] std::string version() const;  // TLSv1.3, ...
  // Bytes of a message with this content, which are not sent.
  [[nodiscard]] std::string encrypted(std::string_view content);
  // Sends bytes as they are, without encryption.
  void send_raw(std::string_view bytes);

 protected:
  [[nodiscard]] ssize_t write_some(std::string_view bytes) override;
  [[nodiscard]] ssize_t read_some(char* bytes, std::size_t size) override;

 private:
  struct Session;
  std::unique_ptr<Session> session_;
};

// Sends one request over a new connection.
[[nodiscard]] RawResponse fetch_encrypted(std::uint16_t port, const std::string& trusted, std::string_view method,
                                          std::string_view target, std::string_view body = {});

}  // namespace hone::test
